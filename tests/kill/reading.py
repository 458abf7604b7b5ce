"""Logs of runs as the server has them."""

import json
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.stores.event_log import EVENT_COUNT
from pyoco_server.bootstrap import Platform, names_of
from pyoco_server.core import Event, event_to_dict
from pyoco_server.settings import Settings


class Logged(NamedTuple):
    """An event as the log has it: in which commit, and when the server stored that."""

    event: Event
    position: int
    stored_at: float


async def read_log(platform: Platform, settings: Settings, run_id: str) -> list[Logged]:
    """The whole log of a run."""
    names = names_of(settings)
    events, _ = await platform.log.read(run_id)
    page = await StreamReader(platform.connection, names.events_stream).page(names.events_subject(run_id), start=1)
    assert page.left == 0, "a longer log than these tests write"
    left, logged = iter(events), list[Logged]()
    for message in page.messages:
        stored_at = datetime.fromisoformat(message.headers["Nats-Time-Stamp"]).timestamp()
        for event in islice(left, int(message.headers[EVENT_COUNT])):
            logged.append(Logged(event, message.sequence, stored_at))
    return logged


def described(log: list[Logged]) -> str:
    """The log in lines."""
    return "\n".join(
        f"  {logged.position} {logged.stored_at:.6f} {logged.event.type.value} {json.dumps(_short(logged.event))}"
        for logged in log
    )


def _short(event: Event) -> dict[str, Any]:
    payload = event_to_dict(event)["payload"]
    return {name: value for name, value in payload.items() if name not in ("meta", "input") and value is not None}

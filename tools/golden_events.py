"""Read examples of events from the golden logs."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from pyoco_server.core.events import Actor
from tools.pages import ROOT

LOGS: Final = ROOT / "tests" / "golden" / "logs"
LONGEST: Final = 900
"""A longer example is skipped if there is another."""

Json = dict[str, Any]


class Happened(NamedTuple):
    """An event, and the case it was recorded in."""

    case: str
    event: Json


@cache
def recorded() -> tuple[Happened, ...]:
    """Return all events of all cases, in the order of the cases' names."""
    return tuple(_read())


def _read() -> Iterator[Happened]:
    for path in sorted(LOGS.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            if line.startswith(b'{"eventId"'):
                yield Happened(path.stem, json.loads(line))


def of_type(event_type: str) -> list[Happened]:
    """Return the events of one type."""
    return [found for found in recorded() if found.event["type"] == event_type]


def example_of(event_type: str, declared: frozenset[str]) -> Happened:
    """Return the short event with the most declared fields; the first of several."""
    found = of_type(event_type)
    short = [one for one in found if len(json.dumps(one.event)) <= LONGEST] or found
    return max(short, key=lambda one: len(_said(one.event["payload"], declared)))


def _said(payload: Json, declared: frozenset[str]) -> frozenset[str]:
    return declared & {name for name, value in payload.items() if value not in (None, {}, [])}


def actors_of(event_type: str) -> list[str]:
    """Return the actors of an event type by kind, parts of the system by name."""
    named = {"engine", "orchestrator", "sweep"}
    found = [Actor(**one.event["actor"]) for one in of_type(event_type)]
    return sorted({f"{one.kind} {one.id}" if one.id in named else str(one.kind) for one in found})

"""Working out a run's state from its log, here, and holding what a gateway says of it against that."""

import time
from typing import Final, NamedTuple

from pyoco_server.app.projection import RunProjection
from pyoco_server.cli.descriptions import shown
from pyoco_server.client import Client
from pyoco_server.core import Event, ExecutionState, decode_event, fold, initial_state, read_graph, state_to_dict
from pyoco_server.core.wire import JsonObject

_DERIVED: Final = (
    "flow_name",
    "status",
    "params",
    "tasks",
    "updated_at",
    "tag",
    "tags",
    "start_time",
    "end_time",
    "error",
    "cancel_requested_at",
    "cancel_requested_by",
    "waiting",
    "version",
)
"""What of a snapshot the log alone decides."""
_TRIES: Final = 20
_PAUSE_SEC: Final = 0.1


class Replay(NamedTuple):
    """What a log comes to."""

    run_id: str
    version: int
    state: ExecutionState
    differences: list[str] | None
    """Where the gateway says something else; None if it was not asked."""
    notes: list[str]
    """Where the log's graph is inconsistent; empty for every log that this system wrote."""


def read_event(fields: JsonObject) -> Event:
    """An event as the gateway tells it, which adds the version it led to."""
    return decode_event({name: value for name, value in fields.items() if name != "version"})


def replay(client: Client, run_id: str, *, at: int | None = None) -> Replay | None:
    """Fold the log, or its first ``at`` events; None if it has not so many."""
    events = [read_event(fields) for fields in client.events(run_id)]
    if at is not None:
        if at > len(events):
            return None
        return Replay(run_id, at, fold(events[:at], initial_state(run_id)), None, read_graph(events).notes)
    return _compared(client, run_id, events)


def _compared(client: Client, run_id: str, events: list[Event]) -> Replay:
    """A run may go on meanwhile, and its snapshot is written after its log: read on until all three tell of one moment.

    What has not met after a while is a difference.
    """
    state, snapshot = client.state(run_id), client.get(run_id)
    for _ in range(_TRIES):
        if state.get("version") == snapshot.get("version") == len(events):
            break
        time.sleep(_PAUSE_SEC)
        events += [read_event(fields) for fields in client.events(run_id, len(events))]
        state, snapshot = client.state(run_id), client.get(run_id)
    folded = fold(events, initial_state(run_id))
    projection = RunProjection(run_id)
    projection.listen(events, folded)
    made = projection.snapshot(position=0)
    derived = {name: made[name] for name in _DERIVED}
    stored = {name: snapshot.get(name) for name in _DERIVED}
    differences = _differences("state", state_to_dict(folded), state) + _differences("snapshot", derived, stored)
    return Replay(run_id, len(events), folded, differences, read_graph(events).notes)


def _differences(where: str, here: object, there: object) -> list[str]:
    """Every place where the two are not the same."""
    if isinstance(here, dict) and isinstance(there, dict):
        return [
            difference
            for name in dict.fromkeys([*here, *there])
            for difference in _differences(f"{where}.{name}", here.get(name), there.get(name))
        ]
    return [] if here == there else [f"{where}: the log says {shown(here)}, the gateway {shown(there)}"]

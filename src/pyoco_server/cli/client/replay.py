"""Computes a run's state from its log, here, and compares it with the state and the snapshot of the gateway."""

import time
from typing import Final, NamedTuple

from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.cli.shared.descriptions import shown
from pyoco_server.client import Client
from pyoco_server.core import Event, ExecutionState, decode_event, fold, initial_state, read_graph, state_to_dict
from pyoco_server.core.json_codec import JsonObject

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
"""The fields of a snapshot that depend on the log alone."""
_TRIES: Final = 20
_PAUSE_SEC: Final = 0.1


class Replay(NamedTuple):
    """The state that a log leads to."""

    run_id: str
    version: int
    state: ExecutionState
    differences: list[str] | None
    """Where the gateway has something else; None if it was not asked."""
    notes: list[str]
    """Where the log's graph is inconsistent; empty for every log that this system wrote."""


def read_event(fields: JsonObject) -> Event:
    """Decode an event of the gateway, which adds the version after it."""
    return decode_event({name: value for name, value in fields.items() if name != "version"})


def replay(client: Client, run_id: str, *, at: int | None = None) -> Replay | None:
    """Fold the log, or its first ``at`` events; None if it has fewer."""
    events = [read_event(fields) for fields in client.events(run_id)]
    if at is not None:
        if at > len(events):
            return None
        return Replay(run_id, at, fold(events[:at], initial_state(run_id)), None, read_graph(events).notes)
    return _compared(client, run_id, events)


def _compared(client: Client, run_id: str, events: list[Event]) -> Replay:
    """Compare log, state and snapshot, which are read one after the other while the run continues.

    Read again until all three have the same version; what still differs after a while is a difference.
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
    """Return every place where the two differ."""
    if isinstance(here, dict) and isinstance(there, dict):
        return [
            difference
            for name in dict.fromkeys([*here, *there])
            for difference in _differences(f"{where}.{name}", here.get(name), there.get(name))
        ]
    return [] if here == there else [f"{where}: the log says {shown(here)}, the gateway {shown(there)}"]

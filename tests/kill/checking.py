"""What must hold of every run, whatever was done to those who drove it."""

import asyncio
import json
from collections.abc import Collection, Iterator
from typing import Any

from pyoco_server.adapters.jetstream.consumers import Consumers
from pyoco_server.app.projection import RunProjection
from pyoco_server.app.snapshot_size import fitted
from pyoco_server.bootstrap import names_of
from pyoco_server.core import Event, EventType, fold, graph_from_log
from pyoco_server.core.payloads import AttemptPayload, NodeStarted
from tests.invariants import ENDS, check_log
from tests.kill.fleet import TAG, Fleet, eventually
from tests.kill.reading import Logged, read_log, told

_NODE_ENDS = {EventType.NODE_SUCCEEDED, EventType.NODE_FAILED, EventType.NODE_CANCELED}
_BESIDE_THE_LOG = ("heartbeat_at", "driven_by")


async def check_runs(fleet: Fleet, run_ids: Collection[str], *, at_once: int = 32) -> dict[str, list[Logged]]:
    """Hold every run against the rules, and return their logs."""
    places, logs = asyncio.Semaphore(at_once), dict[str, list[Logged]]()

    async def one(run_id: str) -> None:
        async with places:
            logs[run_id] = await read_log(fleet.platform, fleet.settings, run_id)
            stored = await fleet.platform.snapshots.read(run_id)
            try:
                assert stored is not None, "there is no snapshot"
                _check_run(fleet, run_id, logs[run_id], json.loads(stored.body))
            except AssertionError as problem:
                raise AssertionError(f"run {run_id}: {problem}\n{told(logs[run_id])}") from problem

    await asyncio.gather(*map(one, run_ids))
    return logs


def _check_run(fleet: Fleet, run_id: str, log: list[Logged], snapshot: dict[str, Any]) -> None:
    events = [logged.event for logged in log]
    ends = [event.type for event in events if event.type in ENDS]
    assert len(ends) == 1, f"it has {len(ends)} ends: {ends}"
    _check_attempts(events)
    check_log(graph_from_log(events), events, fold(events))
    _check_snapshot(fleet, run_id, log, snapshot)
    _check_traces(fleet, run_id, log)


def _check_attempts(events: list[Event]) -> None:
    """Every node ends at most once, every attempt begins after the one before it, and none speaks when it is over."""
    newest, ended = dict[str, int](), set[str]()
    for event in events:
        payload = event.payload
        if not isinstance(payload, AttemptPayload):
            continue
        node = payload.node_id
        assert node not in ended, f"{event.type} of '{node}' after its end"
        if isinstance(payload, NodeStarted):
            assert payload.attempt > newest.get(node, 0), f"attempt {payload.attempt} of '{node}' began twice"
            newest[node] = payload.attempt
        elif payload.attempt is not None:
            assert payload.attempt == newest.get(node, 0), f"{event.type} of '{node}' is of attempt {payload.attempt}"
        if event.type in _NODE_ENDS:
            ended.add(node)


def _check_snapshot(fleet: Fleet, run_id: str, log: list[Logged], snapshot: dict[str, Any]) -> None:
    events = [logged.event for logged in log]
    projection = RunProjection(run_id)
    projection.listen(events, fold(events))
    made = projection.snapshot(position=log[-1].position)
    expected = json.loads(fitted(made, fleet.settings.storage.run_snapshot_max_bytes))
    differing = [
        f"{name}: the snapshot says {snapshot.get(name)!r}, the log {expected.get(name)!r}"
        for name in sorted({*snapshot, *expected} - {*_BESIDE_THE_LOG})
        if snapshot.get(name) != expected.get(name)
    ]
    assert not differing, "\n".join(differing)


def _check_traces(fleet: Fleet, run_id: str, log: list[Logged]) -> None:
    """No node runs again once the log has it that it succeeded."""
    succeeded = {
        logged.event.payload.node_id: logged.stored_at
        for logged in log
        if logged.event.type is EventType.NODE_SUCCEEDED and isinstance(logged.event.payload, AttemptPayload)
    }
    for node, pid, at in traces(fleet, run_id):
        done_at = succeeded.get(node)
        assert done_at is None or at <= done_at, (
            f"'{node}' began in process {pid} at {at}, {at - (done_at or 0.0):.6f} s after it had succeeded"
        )


def traces(fleet: Fleet, run_id: str) -> Iterator[tuple[str, int, float]]:
    """What the tasks of a run left behind: node, process and time of every call."""
    file = fleet.traces / run_id
    for line in file.read_text().splitlines() if file.exists() else ():
        node, pid, at = line.split()
        yield node, int(pid), float(at)


async def check_queue_is_empty(fleet: Fleet, *, within: float = 20.0) -> None:
    """Nothing waits, nothing is in anybody's hands, and nothing was left lying after its last delivery."""
    names = names_of(fleet.settings)
    consumers = Consumers(fleet.platform.connection, names)
    found = ""

    async def is_empty() -> bool:
        nonlocal found
        info = await fleet.platform.connection.js.stream_info(names.work_stream)
        consumer = await consumers.find(consumers.name(TAG))
        assert consumer is not None
        found = f"{info.state.messages} messages, {consumer.num_pending} pending, {consumer.num_ack_pending} in hands"
        return info.state.messages == consumer.num_pending == consumer.num_ack_pending == 0

    await eventually(is_empty, lambda: f"the queue is empty, but it has {found}", within=within)

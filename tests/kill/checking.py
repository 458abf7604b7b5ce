"""What must hold of every run, whatever was done to those who drove it."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyoco_server.adapters.jetstream.primitives.consumers import Consumers
from pyoco_server.app.ports import StoredSnapshot, UnavailableError
from pyoco_server.app.snapshots.codec import fitted
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.bootstrap import names_of
from pyoco_server.core import EventType, fold, graph_from_log
from pyoco_server.core.payloads import AttemptPayload, NodeStarted
from tests.invariants import ENDS, check_log
from tests.kill.crew import TAG, Crew
from tests.kill.processes import eventually
from tests.kill.reading import Logged, described, read_log

_NODE_ENDS = {EventType.NODE_SUCCEEDED, EventType.NODE_FAILED, EventType.NODE_CANCELED}
_BESIDE_THE_LOG = ("heartbeat_at", "driven_by")

Rule = Callable[[Crew, str, list[Logged], dict[str, Any]], None]
"""Given a run's id, log and snapshot, raises AssertionError if something is not as it must be."""


class Looked(NamedTuple):
    """A run as it was found, and which rules it breaks: their names, with what is wrong."""

    log: list[Logged]
    snapshot: dict[str, Any]
    problems: dict[str, str]


async def check_runs(crew: Crew, run_ids: Collection[str], *, at_once: int = 32) -> dict[str, list[Logged]]:
    """Hold every run against the rules, and return their logs."""
    places, logs = asyncio.Semaphore(at_once), dict[str, list[Logged]]()

    async def one(run_id: str) -> None:
        async with places:
            logs[run_id], _, problems = await look_at(crew, run_id)
            assert not problems, f"run {run_id}: {problems}\n{described(logs[run_id])}"

    await asyncio.gather(*map(one, run_ids))
    return logs


async def look_at(crew: Crew, run_id: str) -> Looked:
    """Read a run's log and its snapshot, and hold them against all rules."""
    log, stored = await _read(crew, run_id)
    if stored is None or not log:
        return Looked(log, {}, dict.fromkeys(RULES, "there is no snapshot or no log"))
    snapshot, problems = json.loads(stored.body), dict[str, str]()
    for name, rule in RULES.items():
        try:
            rule(crew, run_id, log, snapshot)
        except AssertionError as problem:
            problems[name] = str(problem)
    return Looked(log, snapshot, problems)


async def _read(crew: Crew, run_id: str, *, times: int = 5) -> tuple[list[Logged], StoredSnapshot | None]:
    """A server that answers slowly, since much else goes on beside it, is asked again."""
    try:
        return await read_log(crew.platform, crew.settings, run_id), await crew.platform.snapshots.read(run_id)
    except UnavailableError:
        if times == 1:
            raise
        return await _read(crew, run_id, times=times - 1)


def _check_end(_crew: Crew, _run_id: str, log: list[Logged], _snapshot: dict[str, Any]) -> None:
    ends = [logged.event.type for logged in log if logged.event.type in ENDS]
    assert len(ends) == 1, f"it has {len(ends)} ends: {ends}"


def _check_steps(_crew: Crew, _run_id: str, log: list[Logged], _snapshot: dict[str, Any]) -> None:
    events = [logged.event for logged in log]
    check_log(graph_from_log(events), events, fold(events))


def _check_attempts(_crew: Crew, _run_id: str, log: list[Logged], _snapshot: dict[str, Any]) -> None:
    """Every node ends at most once, every attempt begins after the one before it, and none speaks when it is over."""
    newest, ended = dict[str, int](), set[str]()
    for event in (logged.event for logged in log):
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


def _check_snapshot(crew: Crew, run_id: str, log: list[Logged], snapshot: dict[str, Any]) -> None:
    events = [logged.event for logged in log]
    projection = RunProjection(run_id)
    projection.listen(events, fold(events))
    made = projection.snapshot(position=log[-1].position)
    expected = json.loads(fitted(made, crew.settings.storage.run_snapshot_max_bytes))
    differing = [
        f"{name}: the snapshot says {snapshot.get(name)!r}, the log {expected.get(name)!r}"
        for name in sorted({*snapshot, *expected} - {*_BESIDE_THE_LOG})
        if snapshot.get(name) != expected.get(name)
    ]
    assert not differing, "\n".join(differing)


def _check_traces(crew: Crew, run_id: str, log: list[Logged], snapshot: dict[str, Any]) -> None:
    """No node runs again once the log has it that it succeeded."""
    mark = snapshot["params"].get("run", run_id)
    succeeded = {
        logged.event.payload.node_id: logged.stored_at
        for logged in log
        if logged.event.type is EventType.NODE_SUCCEEDED and isinstance(logged.event.payload, AttemptPayload)
    }
    for node, pid, at in traces(crew, mark):
        done_at = succeeded.get(node)
        assert done_at is None or at <= done_at, (
            f"'{node}' began in process {pid} at {at}, {at - (done_at or 0.0):.6f} s after it had succeeded"
        )


def traces(crew: Crew, mark: str) -> Iterator[tuple[str, int, float]]:
    """What the tasks of a run (by its parameter ``run``) left behind: node, process and time of every call."""
    file = crew.traces / mark
    for line in file.read_text().splitlines() if file.exists() else ():
        node, pid, at = line.split()
        yield node, int(pid), float(at)


RULES: Final[Mapping[str, Rule]] = {
    "exactly one end": _check_end,
    "no node ends twice, no attempt speaks when it is over": _check_attempts,
    "every event is a step the state machine has": _check_steps,
    "the snapshot is what the log folds to": _check_snapshot,
    "nothing that has succeeded is run again": _check_traces,
}


async def check_queue_is_empty(crew: Crew, *, within: float = 20.0) -> None:
    """No job is queued or in flight, and none stayed in the stream after its last delivery."""
    names = names_of(crew.settings)
    consumers = Consumers(crew.platform.connection, names)
    found = ""

    async def is_empty() -> bool:
        nonlocal found
        info = await crew.platform.connection.js.stream_info(names.work_stream)
        consumer = await consumers.find(consumers.name(TAG))
        assert consumer is not None
        found = f"{info.state.messages} messages, {consumer.num_pending} pending, {consumer.num_ack_pending} in flight"
        return info.state.messages == consumer.num_pending == consumer.num_ack_pending == 0

    await eventually(is_empty, lambda: f"the queue is empty, but it has {found}", within=within)

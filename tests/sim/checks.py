"""The invariants of a world: some hold once its queue is empty, the others are checked at its end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pyoco_server.app.ports import LOG_STATUS, RunQuery
from pyoco_server.app.runs.commands import KEY
from pyoco_server.app.runtime.crashes import WORKER_DIED
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.app.snapshots.status import was_retracted
from pyoco_server.core import Event, ExecutionState, fold, read_graph
from pyoco_server.core.payloads import NodeFailReported, NodeStarted, NodeSucceeded
from pyoco_server.core.state import initial_state
from pyoco_server.flows.model import TaskSpec
from tests.invariants import check_no_repeats, check_step
from tests.sim.flows import FAILING
from tests.sim.history import ABSENT, Kind, Operation
from tests.sim.linearizability import CANCELLING, is_linearizable
from tests.sim.network import at_once

if TYPE_CHECKING:
    from tests.sim.world import World

Problem = tuple[str, str]
FEWEST_DELIVERIES = 3
"""No run is abandoned before that."""
FEWEST_DEATHS = TaskSpec(name="any").max_crashes
_BEGINNINGS = (Kind.SUBMIT, Kind.CREATE)
SNAPSHOT_ONLY = ("heartbeat_at", "driven_by")
"""Fields of a snapshot that do not come from the log."""


def logged(world: "World", run_id: str) -> tuple[Sequence[Event], int]:
    """Return the log of a run, not through the network."""
    return at_once(world.store.log.inner.read(run_id))


# --- Once it is quiet ------------------------------------------------------------------------------------------------


async def quiet_problem(world: "World") -> Problem | None:
    """Return what snapshots and lists do not show yet; None if they show all."""
    for run_id in world.known:
        problem = _snapshot_problem(world, run_id)
        if problem is not None:
            return problem
    left = world.store.queue.left()
    if left:
        return "the queue comes to be empty", f"jobs are left: {left}"
    return await _list_problem(world)


def _snapshot_problem(world: "World", run_id: str) -> Problem | None:
    name = "the snapshot is the fold of the log"
    events, position = logged(world, run_id)
    stored = at_once(world.store.snapshots.inner.read(run_id))
    if stored is None:
        return name, f"{run_id} has no snapshot"
    if not events:
        return name, f"{run_id} has a snapshot, and no log"
    projection = RunProjection(run_id)
    projection.listen(events, fold(events))
    shown = projection.snapshot(position=position)
    fresh = _plain({**shown, LOG_STATUS: shown["status"]})
    found = _plain(msgspec.json.decode(stored.body))
    if found != fresh:
        different = sorted(field for field in fresh if found.get(field) != fresh[field])
        return name, f"{run_id}: {', '.join(f'{each}: {found.get(each)} is {fresh[each]}' for each in different)}"
    return None


def _plain(snapshot: dict[str, Any]) -> Any:
    said = {name: value for name, value in snapshot.items() if name not in SNAPSHOT_ONLY}
    return msgspec.json.decode(msgspec.json.encode(said))


async def _list_problem(world: "World") -> Problem | None:
    name = "lists show every run once"
    for place in world.gateways:
        if place.index is None:
            continue
        found = [run.summary for run in await place.index.page(RunQuery(limit=1000))]
        ids = [str(summary["run_id"]) for summary in found]
        if len(ids) != len(set(ids)):
            return name, f"{place.name} shows a run twice: {ids}"
        for run_id in world.known:
            stored = at_once(world.store.snapshots.inner.read(run_id))
            shown = next((summary for summary in found if summary["run_id"] == run_id), None)
            if shown is None:
                return name, f"{place.name} does not show {run_id}"
            if stored is not None and shown["status"] != msgspec.json.decode(stored.body)["status"]:
                return name, f"{place.name} shows {run_id} as {shown['status']}"
        if any(at_once(world.store.snapshots.inner.read(run_id)) is None for run_id in ids):
            return name, f"{place.name} shows runs that are gone"
    return None


# --- At the very end -------------------------------------------------------------------------------------------------


def check_at_the_end(world: "World") -> None:
    """Check everything that was written and answered against the invariants."""
    for run_id in _all_runs(world):
        _check_log(world, run_id)
    for run_id in world.known:
        _check_accepted(world, run_id)
    for execution_id in world.outside.executions:
        _check_commands(world, execution_id)
    _check_keys(world)
    _check_answers(world)


def _all_runs(world: "World") -> list[str]:
    return [*msgspec.msgpack.decode(world.store.log.inner.dump(), type=dict[str, Any])]


def _check_log(world: "World", run_id: str) -> None:
    events, _ = logged(world, run_id)
    state = initial_state(run_id)
    try:
        for event in events:
            state = check_step(state, event)
        check_no_repeats(events)
    except AssertionError as error:
        world.violation("every log keeps the rules", f"{run_id}: {error}")
    done = [
        (payload.node_id, payload.attempt) for event in events if isinstance(payload := event.payload, NodeSucceeded)
    ]
    if len(done) != len(set(done)):
        world.violation("no node is committed twice", f"{run_id}: {done}")
    _check_who_ended_what(world, run_id, events)
    if run_id in world.flow_of:
        _check_graph(world, run_id, events, state)


def _check_graph(world: "World", run_id: str, events: Sequence[Event], state: ExecutionState) -> None:
    """Check that a run kept the graph of its start, and completed only with all of it: none of these flows isolates."""
    graph, notes, left_out = read_graph(events)
    if notes or left_out:
        world.violation("a run keeps its own graph", f"{run_id}: {notes}")
    inside = tuple(f"{node_id}[" for node_id in graph.nodes)
    foreign = [each for each in state.nodes if each not in graph.nodes and not each.startswith(inside)]
    if foreign:
        world.violation("a run keeps its own graph", f"{run_id}: {foreign} are not in it")
    missing = sorted(each for each in graph.nodes if state.nodes and state.nodes[each].status != "SUCCEEDED")
    if state.status == "COMPLETED" and missing:
        world.violation("COMPLETED means all of the graph succeeded", f"{run_id}: {missing} did not")
    started = {event.payload.node_id for event in events if isinstance(event.payload, NodeStarted)}
    called = {task for run, task in world.called if run == run_id}
    if not called <= started:
        world.violation("only what was started is called", f"{run_id}: {called - started}")


def _check_who_ended_what(world: "World", run_id: str, events: Sequence[Event]) -> None:
    """Check that only the worker that started an attempt at a task reports its end."""
    began: dict[str, str | None] = {}
    for event in events:
        payload = event.payload
        if isinstance(payload, NodeStarted):
            began[payload.node_id] = payload.worker_id
            continue
        if not isinstance(payload, NodeSucceeded | NodeFailReported):
            continue
        is_outside = run_id in world.outside.executions and began.get(payload.node_id) is not None
        if not is_outside and (run_id, payload.node_id) not in world.called:
            continue  # any client may end a wait
        if isinstance(payload, NodeFailReported) and (payload.error or {}).get("code") == WORKER_DIED:
            continue  # the worker that takes over reports that those before it died
        if event.actor.id != began.get(payload.node_id):
            details = f"{event.actor.id} ended what {began.get(payload.node_id)} began"
            world.violation("only the worker of an attempt ends it", f"{run_id}, {payload.node_id}: {details}")


def _check_accepted(world: "World", run_id: str) -> None:
    events, _ = logged(world, run_id)
    if not events:
        world.violation("no acknowledged run is lost", f"{run_id} has no log")
        return
    state = fold(events)
    if was_retracted(state):
        world.violation("no acknowledged run is lost", f"{run_id} was retracted")
    cancelled = [each for each in _about(world, run_id) if each.kind is Kind.CANCEL and each.answer == CANCELLING]
    if cancelled and state.status != "CANCELED":
        world.violation("a cancel answered CANCELLING ends CANCELLED", f"{run_id} ended {state.status}")
    lost = sorted(
        node_id for run, node_id in world.resumed if run == run_id and state.nodes[node_id].status == "FAILED"
    )
    if lost:
        world.violation("what was resumed in time does not fail", f"{run_id}: {lost}")
    if state.status == "FAILED":
        _check_failure(world, run_id, state)


def _check_failure(world: "World", run_id: str, state: ExecutionState) -> None:
    code = ((state.failure or {}).get("error") or {}).get("code")
    if code == "DELIVERIES_USED_UP":
        times = world.store.queue.deliveries.get(run_id, 0)
        if times < FEWEST_DELIVERIES:
            world.violation("a run fails for a reason", f"{run_id} was given up on after {times} deliveries")
    elif code == WORKER_DIED:
        _check_deaths(world, run_id, state)
    elif run_id in world.outside.executions:
        if not any(each.fields["type"] == "FailNode" for each in world.outside.of(run_id)):
            world.violation("a run fails for a reason", f"{run_id} failed without a reason: {state.failure}")
    elif code == "FLOW_NOT_FOUND" and not state.nodes and world.flow_of[run_id] in world.missed:
        return  # no live worker had it
    elif world.flow_of[run_id] not in FAILING:
        world.violation("a run fails for a reason", f"{run_id} failed: {state.failure}")


def _check_deaths(world: "World", run_id: str, state: ExecutionState) -> None:
    """Check that as many workers as the task may lose have started an attempt at it."""
    failure = state.failure or {}
    said, node_id = failure["error"]["detail"]["workers"], failure["failedNodeId"]
    starts = [event.payload for event in logged(world, run_id)[0] if isinstance(event.payload, NodeStarted)]
    started = [each.worker_id for each in starts if each.node_id == node_id]
    if len(said) < FEWEST_DEATHS or len(started) < len(said) or not set(said) <= set(started):
        world.violation("a run fails for a reason", f"{run_id}: {said} are said to have died, {started} started it")


def _check_commands(world: "World", execution_id: str) -> None:
    """Check that accepted commands are in the log, and that a repeated command takes effect once."""
    events, _ = logged(world, execution_id)
    ids = [event.event_id for event in events]
    for each in world.outside.of(execution_id):
        missing = [event_id for event_id in each.event_ids if event_id not in ids]
        if missing:
            world.violation("what was answered is in the log", f"{each}, but not {missing}")
        under_key = [event.type for event in events if each.key and event.payload.extra.get(KEY) == each.key]
        if len(under_key) != len(set(under_key)) or (under_key and each.refusal is not None):
            world.violation("one key stands for one command", f"{each}; the log has {', '.join(under_key)}")


def _check_keys(world: "World") -> None:
    """Check that each idempotency key stands for one run."""
    by_key: dict[str | None, set[str]] = {}
    for each in (*world.history.of(Kind.SUBMIT), *world.history.of(Kind.CREATE)):
        if each.run_id:
            by_key.setdefault(each.key, set()).add(each.run_id)
    for key, runs in by_key.items():
        if len(runs) > 1:
            world.violation("one key stands for one run", f"'{key}' stands for {sorted(runs)}")


def _check_answers(world: "World") -> None:
    for run_id in world.known:
        about = _about(world, run_id)
        keys = {each.key for each in about if each.kind in _BEGINNINGS}
        unknown = [
            each for kind in _BEGINNINGS for each in world.history.of(kind) if each.key in keys and not each.run_id
        ]
        ordered = [each for each in [*unknown, *about] if each.kind is not Kind.LOOK]
        if not is_linearizable(ordered):
            world.violation("answers are linearizable", "; ".join(map(str, ordered)))
        _check_looks(world, run_id, about)


def _check_looks(world: "World", run_id: str, about: Sequence[Operation]) -> None:
    """A snapshot may be old, but it is there, and of two looks in a row the later sees no less.

    A created execution is answered before it has a snapshot: its driver reads the log.
    """
    looks = [each for each in about if each.kind is Kind.LOOK and each.is_known]
    submitted = [each.answered or 0 for each in about if each.kind is Kind.SUBMIT and each.is_known]
    for look in looks:
        if look.answer == ABSENT and submitted and look.asked > min(submitted):
            world.violation("no acknowledged run is lost", f"{run_id} could not be seen: {look}")
        before = [each.position for each in looks if (each.answered or 0) < look.asked]
        if look.position < max(before, default=0):
            world.violation("snapshots never go back", f"{run_id}: {look}")


def _about(world: "World", run_id: str) -> list[Operation]:
    return [each for each in world.history.operations if each.run_id == run_id]

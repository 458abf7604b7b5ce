"""Random flows, taken over by a worker with an edited flow from every commit of their logs, with cancels in between.

The log up to a commit is all that the second worker finds: no snapshot, no other worker. Every call is held against the
log at the moment of the call: it belongs to one attempt at one node, which has begun, has not ended, and was not called
before. PYOCO_FUZZ=50 tries more; ``tests/kill/test_own_graph.py`` does the same to processes.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import given, note
from hypothesis import strategies as st
from typing_extensions import override

from pyoco_server.app.runtime.crashes import CRASHED
from pyoco_server.core import Event, NodeStatus, fold, graph_from_log
from pyoco_server.core.payloads import NodeFailReported
from pyoco_server.flows.from_pyoco import Function
from pyoco_server.flows.model import FlowModel, tasks_of
from pyoco_server.worker.flow_source import Flows, Resolved
from pyoco_server.worker.settlement import Nak
from tests.fuzz.bounds import examples
from tests.invariants import check_log
from tests.worker.own_graph_flows import edited, flows, parameters, readable
from tests.worker.own_graph_laws import (
    Begun,
    check_attempts_are_numbered,
    check_end,
    is_cancelled,
    node_called,
    starts_of_tasks,
    tasks_of_nodes,
)
from tests.worker.world import USER, Hand, World, attempt

MOST_JOBS = 60


class CancelAt(NamedTuple):
    """When a run is cancelled: as the call of that number begins, or when so many jobs have been handled."""

    call: int
    job: int


class Calls:
    """The calls of one run, as the log stood when they began."""

    def __init__(self, world: World, flaky: set[str], cancel: CancelAt) -> None:
        """``flaky``: tasks that fail at their first call."""
        self.begun: list[Begun] = []
        self.given: list[tuple[str, Any]] = []
        """By task, what the calls were given as ``n``."""
        self.problems: list[str] = []
        """Raised in a task, an assertion would be an attempt that failed."""
        self.world = world
        self.flaky = flaky
        self.cancel = cancel

    async def begin(self, ctx: Any, task: str, n: Any) -> None:
        """Hold a call that begins now against the log."""
        run_id = ctx.run_context.run_id
        events = await self.world.events(run_id)
        node_id = node_called(events, task, [frame.index for frame in ctx.loops])
        node = fold(events).nodes[node_id]
        starts = [start.attempt for start in starts_of_tasks(events) if start.node_id == node_id]
        self._check(bool(starts), f"'{node_id}' is called and was never started")
        self._check((node_id, node.attempt) not in self.begun, f"attempt {node.attempt} of '{node_id}' is called twice")
        self._check(node.is_at_work, f"'{node_id}' is called when it is {node.status}")
        self.begun.append((node_id, node.attempt))
        self.given.append((task, n))
        if len(self.begun) == self.cancel.call:
            await asyncio.shield(asyncio.create_task(self.world.cancel(run_id)))

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


class Code(Flows):
    """A flow with functions that record their calls."""

    def __init__(self, model: FlowModel, calls: Calls) -> None:
        super().__init__({model.name: model})
        self._resolved: Resolved = (
            model,
            {task.name: _recording(task.name, calls) for task in tasks_of(model) if task.wait is None},
        )

    @override
    def read(self, flow_name: str, *, is_started: bool = False) -> Resolved:
        return self._resolved

    @property
    def names_of_tasks(self) -> set[str]:
        return {*self._resolved[1]}


def _recording(name: str, calls: Calls) -> Function:
    async def body(ctx: Any, n: Any = None, given: Any = None, fails: bool = False) -> str:  # noqa: ARG001 inputs
        await calls.begin(ctx, name, n)
        if fails or name in calls.flaky:
            calls.flaky.discard(name)
            raise ValueError("no good")
        return name

    return body


def _flaky_in(model: FlowModel) -> set[str]:
    return {task.name for task in tasks_of(model) if task.retries and task.wait is None}


async def _driven(
    world: World, run_id: str, worker: Hand, code: Code, whole: Callable[[], Hand], cancel: CancelAt
) -> None:
    """Drive the run to its end: answer its waits, and bring a worker with all of the code when it is held."""
    for job in range(MOST_JOBS):
        if job == cancel.job:
            await world.cancel(run_id)
        if (await world.state(run_id)).is_terminal:
            return
        settlement = await worker.work()
        await readable(world, run_id)
        state = await world.state(run_id)
        waiting = [node.node_id for node in state.live_nodes() if node.status is NodeStatus.WAITING]
        if state.is_terminal:
            return
        if waiting:
            await world.resume(run_id, waiting[0], "answer", USER)
            continue
        if isinstance(settlement, Nak):  # the log has moved on behind the wake-up: the job is looked at again
            continue
        held = (await world.stored(run_id)).get("held")
        assert held is not None, "a run that is not at its end waits, or is held"
        own = set(tasks_of_nodes(await world.events(run_id)).values())
        assert set(held["needs"]) <= own - code.names_of_tasks
        worker = whole()
        await world.run_log.wake_held(run_id, held["since"])
    raise AssertionError(f"the run did not end within {MOST_JOBS} jobs")


def _check_calls(calls: Calls, before: Sequence[Event], events: Sequence[Event]) -> None:
    """Every attempt that has begun behind ``before`` was called once, and nothing else was.

    Only a cancel, or the failure of the run, may come before the call of an attempt that has begun.
    """
    check_attempts_are_numbered(events)
    starts = {(start.node_id, start.attempt) for start in starts_of_tasks(events)[len(starts_of_tasks(before)) :]}
    assert calls.problems == []
    assert set(calls.begun) <= starts
    nodes = fold(events).nodes
    uncalled = starts - set(calls.begun)
    assert {nodes[node_id].status for node_id, _ in uncalled} <= {NodeStatus.CANCELED}
    assert not uncalled or is_cancelled(events) or fold(events).status == "FAILED"


async def _run_to_the_end(
    world: World, model: FlowModel, params: dict[str, Any], cancel: CancelAt
) -> tuple[str, Sequence[Event], list[int]]:
    """The run as one worker runs it: its log, and where each commit ends."""
    ends: list[int] = []
    await world.log.inner.subscribe_all(lambda _, position: ends.append(position))
    calls = Calls(world, _flaky_in(model), cancel)
    code = Code(model, calls)
    run_id = await world.submit("f", params)
    worker = world.hand(code)
    await _driven(world, run_id, worker, code, lambda: worker, cancel)
    events = await world.events(run_id)
    _check_calls(calls, (), events)
    check_end(model, params, events, await world.state(run_id), set())
    return run_id, events, ends


async def _taken_over(
    world: World,
    run_id: str,
    log: Sequence[Event],
    model: FlowModel,
    edit: FlowModel,
    params: dict[str, Any],
    cancel: CancelAt,
) -> None:
    """A worker with the edited flow takes over a run of which only the log is left."""
    await world.log.inner.append(run_id, log, after=0)
    before = fold(log)
    is_started = bool(before.nodes)
    calls = Calls(world, _flaky_in(model) - _failed_in(log) if is_started else set(), cancel)
    code = Code(edit, calls)
    await world.run_log.wake(await world.run_log.open(run_id))
    if before.is_terminal:
        await world.hand(code, "edited").work()
        assert (list(await world.events(run_id)), calls.begun) == (list(log), [])
        return
    await _driven(
        world, run_id, world.hand(code, "edited"), code, lambda: world.hand(Code(model, calls), "whole"), cancel
    )
    events, state = await world.events(run_id), await world.state(run_id)
    own = model if is_started else edit
    graph = graph_from_log(events)
    if is_started:
        assert set(graph.nodes) == set(graph_from_log(log).nodes)
    _check_calls(calls, log, events)
    _check_takeover(log, events)
    names, lost = tasks_of_nodes(log), {task.name for task in tasks_of(own) if task.at_most_once}
    at_work = {names[node.node_id] for node in before.live_nodes() if node.is_at_work and node.node_id in names}
    check_end(own, params, events, state, lost & at_work)
    assert (await world.stored(run_id))["status"] == {"CANCELED": "CANCELLED"}.get(state.status, state.status)
    inputs = {task.name: task.inputs.get("n") for task in tasks_of(own)}
    assert all(inputs[name] == n for name, n in calls.given)
    check_log(graph, events, state)


def _failed_in(log: Sequence[Event]) -> set[str]:
    """Tasks that have failed once."""
    names = tasks_of_nodes(log)
    return {names[event.payload.node_id] for event in log if isinstance(event.payload, NodeFailReported)}


def _check_takeover(log: Sequence[Event], events: Sequence[Event]) -> None:
    """A start whose call may never have happened counts: the next attempt has a higher number and names the crash."""
    at_work = {node.node_id: node.attempt for node in fold(log).live_nodes() if node.is_at_work}
    behind = {start.node_id: start for start in reversed(starts_of_tasks(events)[len(starts_of_tasks(log)) :])}
    for node_id in at_work.keys() & behind.keys():
        start = behind[node_id]
        assert (start.attempt, start.extra[CRASHED]["attempt"]) == (at_work[node_id] + 1, at_work[node_id])


def cancels() -> st.SearchStrategy[CancelAt]:
    """Most runs are not cancelled."""
    no, at_call, at_job = CancelAt(0, -1), st.integers(1, 6), st.integers(0, 3)
    return st.one_of(
        st.just(no), st.just(no), st.builds(CancelAt, at_call, st.just(-1)), st.builds(CancelAt, st.just(0), at_job)
    )


@examples(8)
@given(data=st.data(), model=flows(), params=parameters(), first=cancels(), then=cancels())
def test_a_run_keeps_its_graph_whatever_commit_a_worker_with_an_edited_flow_finds(
    data: st.DataObject, model: FlowModel, params: dict[str, Any], first: CancelAt, then: CancelAt
) -> None:
    edit = data.draw(edited(model))

    async def whole(world: World) -> tuple[str, Sequence[Event], list[int]]:
        return await _run_to_the_end(world, model, params, first)

    run_id, events, ends = attempt(whole)
    for end in ends:
        note(f"taken over after {end} of {len(events)} events")

        async def taken_over(world: World, end: int = end) -> None:
            await _taken_over(world, run_id, events[:end], model, edit, params, then)

        attempt(taken_over)

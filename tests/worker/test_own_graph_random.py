"""Random flows, taken over by a worker with an edited flow from every commit of their logs.

The log up to a commit is all that the second worker finds: no snapshot, no other worker. PYOCO_FUZZ=50 tries more.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st
from typing_extensions import override

from pyoco_server.core import Event, NodeStatus, fold, graph_from_log
from pyoco_server.core.payloads import NodeCreated, NodeFailReported, NodeStarted, NodeSucceeded
from pyoco_server.flows.from_pyoco import Function
from pyoco_server.flows.model import FlowModel, tasks_of
from pyoco_server.worker.flow_source import Flows, Resolved
from tests.fuzz.bounds import examples
from tests.invariants import check_log
from tests.worker.own_graph_flows import demanded, edited, flows, parameters, readable
from tests.worker.world import USER, Hand, World, attempt

MOST_JOBS = 60
Called = tuple[str, Any]
"""The name of a task, and what it was given as ``n``."""


class Code(Flows):
    """A flow with functions that record their calls; tasks in ``flaky`` fail at their first call."""

    def __init__(self, model: FlowModel, calls: list[Called], flaky: set[str]) -> None:
        super().__init__({model.name: model})
        self._resolved: Resolved = (
            model,
            {task.name: _recording(task.name, calls, flaky) for task in tasks_of(model) if task.wait is None},
        )

    @override
    def read(self, flow_name: str, *, is_started: bool = False) -> Resolved:
        return self._resolved

    @property
    def names_of_tasks(self) -> set[str]:
        return {*self._resolved[1]}


def _recording(name: str, calls: list[Called], flaky: set[str]) -> Function:
    async def body(n: Any = None, given: Any = None) -> str:  # noqa: ARG001 what tasks are given as inputs
        calls.append((name, n))
        if name in flaky:
            flaky.remove(name)
            raise ValueError("the first call fails")
        return name

    return body


def _tasks_of_nodes(events: Sequence[Event]) -> dict[str, str]:
    """By node, the task that it calls."""
    return {
        payload.node_id: str(payload.described["task"])
        for event in events
        if isinstance(payload := event.payload, NodeCreated) and payload.node_type == "Task"
    }


def _count(events: Sequence[Event], kind: type[Any], log: Sequence[Event]) -> Counter[str]:
    tasks = _tasks_of_nodes(log)
    return Counter(
        tasks[event.payload.node_id]
        for event in events
        if isinstance(event.payload, kind) and event.payload.node_id in tasks
    )


def _flaky_in(model: FlowModel) -> set[str]:
    return {task.name for task in tasks_of(model) if task.retries and task.wait is None}


async def _driven(world: World, run_id: str, worker: Hand, code: Code, whole: Callable[[], Hand]) -> None:
    """Drive the run to its end: answer its waits, and bring a worker with all of the code when it is held."""
    for _ in range(MOST_JOBS):
        await worker.work()
        await readable(world, run_id)
        state = await world.state(run_id)
        if state.is_terminal:
            return
        waiting = [node.node_id for node in state.live_nodes() if node.status is NodeStatus.WAITING]
        if waiting:
            await world.desk.resume(run_id, waiting[0], "answer", USER)
            continue
        held = (await world.stored(run_id)).get("held")
        assert held is not None, "a run that is not at its end waits, or is held"
        own = set(_tasks_of_nodes(await world.events(run_id)).values())
        assert set(held["needs"]) <= own - code.names_of_tasks
        worker = whole()
        await world.desk.wake_held(run_id, held["since"])
    raise AssertionError(f"the run did not end within {MOST_JOBS} jobs")


async def _run_to_the_end(
    world: World, model: FlowModel, params: dict[str, Any]
) -> tuple[str, Sequence[Event], list[int]]:
    """The run as one worker runs it: its log, and where each commit ends."""
    ends: list[int] = []
    await world.log.inner.subscribe_all(lambda _, position: ends.append(position))
    calls: list[Called] = []
    code = Code(model, calls, _flaky_in(model))
    run_id = await world.submit("f", params)
    worker = world.hand(code)
    await _driven(world, run_id, worker, code, lambda: worker)
    events = await world.events(run_id)
    assert Counter(name for name, _ in calls) == _count(events, NodeStarted, events)
    return run_id, events, ends


async def _taken_over(
    world: World, run_id: str, log: Sequence[Event], model: FlowModel, edit: FlowModel, params: dict[str, Any]
) -> None:
    """A worker with the edited flow takes over a run of which only the log is left."""
    await world.log.inner.append(run_id, log, after=0)
    before, calls = fold(log), list[Called]()
    is_started = bool(before.nodes)
    has_failed = _count(log, NodeFailReported, log)
    flaky = _flaky_in(model) - {*has_failed} if is_started else set[str]()
    code = Code(edit, calls, flaky)
    await world.desk.wake(await world.desk.open(run_id))
    if before.is_terminal:
        await world.hand(code, "edited").work()
        assert (list(await world.events(run_id)), calls) == (list(log), [])
        return
    await _driven(
        world, run_id, world.hand(code, "edited"), code, lambda: world.hand(Code(model, calls, flaky), "whole")
    )
    events, state = await world.events(run_id), await world.state(run_id)
    own = model if is_started else edit
    graph = graph_from_log(events)
    if is_started:
        assert set(graph.nodes) == set(graph_from_log(log).nodes)
    assert (state.status, (await world.stored(run_id))["status"]) == ("COMPLETED", "COMPLETED")
    assert {node.status for node in state.nodes.values()} == {NodeStatus.SUCCEEDED}
    assert set(graph.nodes) <= set(state.nodes)
    succeeded = _count(events, NodeSucceeded, events)
    assert succeeded == _without_waits(own, demanded(own, params))
    assert Counter(name for name, _ in calls) == _count(events[len(log) :], NodeStarted, events)
    inputs = {task.name: task.inputs.get("n") for task in tasks_of(own)}
    assert all(inputs[name] == n for name, n in calls)
    check_log(graph, events, state)


def _without_waits(model: FlowModel, demand: Counter[str]) -> Counter[str]:
    waits = {task.name for task in tasks_of(model) if task.wait is not None}
    return Counter({name: many for name, many in demand.items() if name not in waits})


@examples(8)
@given(data=st.data(), model=flows(), params=parameters())
def test_a_run_keeps_its_graph_whatever_commit_a_worker_with_an_edited_flow_finds(
    data: st.DataObject, model: FlowModel, params: dict[str, Any]
) -> None:
    edit = data.draw(edited(model))

    async def whole(world: World) -> tuple[str, Sequence[Event], list[int]]:
        return await _run_to_the_end(world, model, params)

    run_id, events, ends = attempt(whole)
    for end in ends:
        note(f"taken over after {end} of {len(events)} events")

        async def taken_over(world: World, end: int = end) -> None:
            await _taken_over(world, run_id, events[:end], model, edit, params)

        attempt(taken_over)

"""A process that comes late to what it has begun looks before it calls anything. In memory, step by step."""

import asyncio

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import options
from pyoco_server.adapters.jetstream.durability.connection import RECONNECT_WAIT_SEC
from pyoco_server.app.runtime.control_flow import ChildNodes
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.node_executor import NodeExecutor
from pyoco_server.app.runtime.start_fence import DeadlineCall, StartDeadline, TooLateError
from pyoco_server.core import Actor, ActorKind, graph_from_log
from pyoco_server.core.commands import StartNode, SucceedNode
from pyoco_server.worker import job_handler
from pyoco_server.worker.settlement import Ack, Nak, NoAction
from tests.app.runtime.flows import Calls
from tests.app.runtime.pyoco_side import after, network
from tests.kill.flows import early
from tests.worker.faulty import Fault
from tests.worker.world import Held, World

AT_ONCE = 0.0
AS_IT_IS = job_handler.LATE_SEC


def test_a_start_is_late_before_any_worker_can_be_back_after_a_crash_of_the_server() -> None:
    assert AS_IT_IS < RECONNECT_WAIT_SEC


@pytest.fixture(autouse=True)
def _always_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_handler, "LATE_SEC", AT_ONCE)


async def _take_over(world: World, run_id: str, node_id: str, *, to_the_end: bool = False) -> None:
    """What another worker does when the job is delivered to it."""
    events, position = await world.log.inner.read(run_id)
    execution = Execution(run_id, graph_from_log(events), log=world.log.inner, clock=world.clock, new_id=world.new_id)
    execution.begin_at(events, position)
    other = Actor(ActorKind.SYSTEM, "other#1")
    await execution.do(
        StartNode(execution_id=run_id, actor=other, node_id=node_id, attempt=2, worker_id="other#1"), observed=True
    )
    if to_the_end:
        await execution.do(
            SucceedNode(execution_id=run_id, actor=other, node_id=node_id, attempt=2, output={}), observed=True
        )


async def _late(flow: Flow, *, taken_over: bool, fault: Fault = Fault.NONE) -> tuple[object, list[str]]:
    world = World(virtual=False)
    try:
        run_id = await world.submit(flow.name)
        if taken_over:
            world.trouble.meanwhile["log.read"] = lambda: _take_over(world, run_id, "only")
        world.trouble.next("log.read", fault)
        settlement = await world.hand({flow.name: flow}).work()
        return settlement, await world.types(run_id)
    finally:
        await world.close()


def test_who_is_late_and_still_has_the_run_goes_on() -> None:
    calls = Calls()
    settlement, types = asyncio.run(_late(Flow("late") >> calls.task("only", 1), taken_over=False))
    assert settlement == Ack()
    assert types[-1] == "EXECUTION_COMPLETED"
    assert calls.names == ["only"]


def test_who_is_late_and_has_lost_the_run_calls_nothing() -> None:
    calls = Calls()
    settlement, types = asyncio.run(_late(Flow("late") >> calls.task("only", 1), taken_over=True))
    assert settlement == NoAction()
    assert types[-1] == "NODE_STARTED"
    assert calls.names == []


def test_who_is_late_and_cannot_look_calls_nothing() -> None:
    calls = Calls()
    flow = Flow("late") >> calls.task("only", 1)
    settlement, types = asyncio.run(_late(flow, taken_over=False, fault=Fault.NOT_DONE))
    assert isinstance(settlement, Nak)
    assert types[-1] == "NODE_STARTED"
    assert calls.names == []


def test_a_worker_that_sees_its_start_and_that_of_another_at_once_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit that began the node was not answered; when it is found in the log, the node is in other hands."""
    executed, execute = list[str](), NodeExecutor.execute

    async def noted(nodes: NodeExecutor, node_id: str, children: ChildNodes, *, attempt: int) -> None:
        executed.append(node_id)
        await execute(nodes, node_id, children, attempt=attempt)

    monkeypatch.setattr(NodeExecutor, "execute", noted)
    monkeypatch.setattr(job_handler, "LATE_SEC", AS_IT_IS)

    async def body() -> None:
        calls, world = Calls(), World(virtual=False)
        flow = Flow("late") >> calls.task("before", 1) >> calls.task("only", 2)
        try:
            run_id = await world.submit(flow.name)
            world.trouble.next("log.append", Fault.NONE, Fault.UNANSWERED)
            world.trouble.meanwhile["log.read"] = lambda: _take_over(world, run_id, "only")
            assert await world.hand({flow.name: flow}).work() == NoAction()
        finally:
            await world.close()

    asyncio.run(body())
    assert executed == ["before"]


@pytest.mark.parametrize("to_the_end", [False, True])
def test_a_worker_that_sees_its_start_of_the_run_late_leaves_it_to_the_owner(to_the_end: bool) -> None:
    async def body() -> None:
        calls, world = Calls(), World(virtual=False)
        flow = Flow("late") >> calls.task("only", 1) >> calls.task("after", 2)
        try:
            run_id = await world.submit(flow.name)
            world.trouble.next("log.append", Fault.UNANSWERED)
            world.trouble.meanwhile["log.read"] = lambda: _take_over(world, run_id, "only", to_the_end=to_the_end)
            assert await world.hand({flow.name: flow}).work() == NoAction()
        finally:
            await world.close()
        assert calls.names == []
        assert (await world.types(run_id))[-1] == ("NODE_READY" if to_the_end else "NODE_STARTED")

    asyncio.run(body())


def test_what_follows_from_the_work_of_another_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start and the success of the other worker arrive together, with the next task to start."""
    monkeypatch.setattr(job_handler, "LATE_SEC", AS_IT_IS)

    async def body() -> None:
        calls, world = Calls(), World(virtual=False)
        flow = Flow("late") >> calls.task("before", 1) >> calls.task("only", 2) >> calls.task("after", 3)
        try:
            run_id = await world.submit(flow.name)
            world.trouble.next("log.append", Fault.NONE, Fault.UNANSWERED)
            world.trouble.meanwhile["log.read"] = lambda: _take_over(world, run_id, "only", to_the_end=True)
            assert await world.hand({flow.name: flow}).work() == NoAction()
        finally:
            await world.close()
        assert (await world.types(run_id))[-2:] == ["NODE_SUCCEEDED", "NODE_READY"]

    asyncio.run(body())


def test_a_worker_that_sees_a_takeover_when_it_writes_a_success_does_not_start_what_follows() -> None:
    """The other worker would take that for a takeover in turn, and the run would have no owner."""

    async def body() -> None:
        world, mine, theirs = World(virtual=False), Held("mine"), Held("theirs")
        done = mine.task()
        flow = network(theirs.task(), done, after(Calls().task("next", 1), done), name="late")
        try:
            run_id = await world.submit(flow.name)
            world.trouble.is_silent = True
            working = asyncio.create_task(world.hand({flow.name: flow}).work())
            await mine.at_work()
            await theirs.at_work()
            await _take_over(world, run_id, "theirs")
            mine.release()
            assert await working == NoAction()
        finally:
            await world.close()
        assert (await world.types(run_id))[-2:] == ["NODE_SUCCEEDED", "NODE_READY"]

    asyncio.run(body())


def test_in_a_process_too_late_is_found_out_there_and_made_sure_of_here() -> None:
    flow = Flow("late") >> options(early, isolation="process")
    settlement, types = asyncio.run(_late(flow, taken_over=False))
    assert settlement == Ack()
    assert types[-1] == "EXECUTION_COMPLETED"


def test_a_function_in_time_is_called_and_another_is_not() -> None:
    deadline = StartDeadline(float("inf"))
    function = DeadlineCall.make(abs, deadline)
    assert function(-1) == 1
    deadline.latest = 0.0
    with pytest.raises(TooLateError):
        function(-1)

"""RunDriver: which attempts it starts, from any log that another process may have left, and why it stops."""

import asyncio
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.runtime.driver import DriveOutcome
from pyoco_server.core.commands import CancelExecution, StartNode
from tests.app.runtime.flows import Calls
from tests.app.runtime.parts import USER, Parts
from tests.worker.world import Held


async def _taken_over(flow: Flow, **given: Any) -> Parts:
    """A run that worker w1 has started and left; the parts of w2, which has read its log."""
    left = Parts(flow, "w1")
    await left.start()
    parts = Parts(flow, "w2", log=left.log, **given)
    await parts.execution.load()
    return parts


def test_drive_executes_the_nodes_that_its_process_has_started() -> None:
    async def body() -> None:
        calls = Calls()
        parts = Parts(Flow("flow") >> calls.task("one", 1) >> calls.task("two", 2), "w1")
        await parts.start()
        assert await parts.driver.drive(["one"]) is DriveOutcome.ENDED
        assert calls.names == ["one", "two"]

    asyncio.run(body())


def test_drive_starts_a_task_that_a_dead_worker_left_as_a_new_attempt_and_counts_the_crash() -> None:
    async def body() -> None:
        parts = await _taken_over(Flow("flow") >> Calls().task("only", 1))
        assert await parts.driver.drive() is DriveOutcome.ENDED
        payloads: list[Any] = [event.payload for event in await parts.events("NODE_STARTED")]
        assert [(start.attempt, start.worker_id) for start in payloads] == [(1, "w1"), (2, "w2")]
        assert payloads[1].extra["crashed"] == {"attempt": 1, "workerId": "w1", "crashes": 1}

    asyncio.run(body())


def test_drive_holds_a_run_whose_code_is_missing_and_starts_nothing() -> None:
    async def body() -> None:
        parts = await _taken_over(Flow("flow") >> Calls().task("only", 1), functions={})
        assert await parts.driver.drive() is DriveOutcome.HELD
        assert len(await parts.events("NODE_STARTED")) == 1

    asyncio.run(body())


def test_drive_parks_a_run_that_only_waits() -> None:
    async def body() -> None:
        parts = await _taken_over(Flow("flow") >> wait("answer"))
        assert await parts.driver.drive() is DriveOutcome.PARKED

    asyncio.run(body())


def test_drive_stops_when_another_process_starts_a_node() -> None:
    async def body() -> None:
        held, calls = Held("one"), Calls()
        flow = Flow("flow") >> held.task() >> calls.task("two", 2)
        parts = Parts(flow, "w1")
        await parts.start()
        unfollow = await parts.execution.follow()
        driving = asyncio.create_task(parts.driver.drive(["one"]))
        await held.at_work()
        other = Parts(flow, "w2", log=parts.log)
        await other.execution.load()
        newer = StartNode(execution_id="run", actor=other.commands.actor, node_id="one", attempt=2, worker_id="w2")
        await other.execution.do(newer, observed=True)
        assert await driving is DriveOutcome.TAKEN_OVER
        unfollow()
        assert (held.stopped, calls.names) == (1, [])

    asyncio.run(body())


def test_drive_ends_a_cancelled_run_whose_worker_is_gone_and_calls_nothing() -> None:
    async def body() -> None:
        calls = Calls()
        parts = await _taken_over(Flow("flow") >> calls.task("only", 1))
        await parts.execution.do(CancelExecution(execution_id="run", actor=USER))
        assert await parts.driver.drive() is DriveOutcome.ENDED
        assert parts.execution.state.status == "CANCELED"
        assert calls.names == []

    asyncio.run(body())

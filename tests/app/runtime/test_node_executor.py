"""NodeExecutor alone: it executes an attempt that the log says has started, and reports how the attempt ended."""

import asyncio
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.core.commands import StartNode
from tests.app.runtime.flows import Calls
from tests.app.runtime.parts import Parts

LARGE = "more than twenty bytes of text"


def _payload(event: Any) -> Any:
    return event.payload


def test_execute_reports_the_result_of_the_started_attempt() -> None:
    async def body() -> None:
        parts = Parts(Flow("flow") >> Calls().task("only", 7), "w1")
        await parts.start()
        await parts.nodes.execute("only", parts.driver, attempt=1)
        [succeeded] = map(_payload, await parts.events("NODE_SUCCEEDED"))
        assert (succeeded.attempt, succeeded.output) == (1, {"value": 7})

    asyncio.run(body())


def test_execute_reports_a_failure_with_the_exception() -> None:
    def broken(_ctx: Any) -> None:
        raise ValueError("no such order")

    async def body() -> None:
        parts = Parts(Flow("flow") >> Calls().task("only", broken), "w1")
        await parts.start()
        await parts.nodes.execute("only", parts.driver, attempt=1)
        [failed] = map(_payload, await parts.events("NODE_FAILED"))
        assert (failed.error["code"], failed.error["message"]) == ("ValueError", "no such order")

    asyncio.run(body())


def test_execute_starts_no_other_node() -> None:
    async def body() -> None:
        parts = Parts(Flow("flow") >> Calls().task("one", 1) >> Calls().task("two", 2), "w1")
        await parts.start()
        await parts.nodes.execute("one", parts.driver, attempt=1)
        assert [_payload(event).node_id for event in await parts.events("NODE_STARTED")] == ["one"]

    asyncio.run(body())


def test_result_of_a_replaced_attempt_is_neither_recorded_nor_kept() -> None:
    async def body() -> None:
        flow = Flow("flow") >> Calls().task("only", LARGE)
        parts = Parts(flow, "w1")
        await parts.start()
        other = Parts(flow, "w2", log=parts.log)
        await other.execution.load()
        newer = StartNode(execution_id="run", actor=other.commands.actor, node_id="only", attempt=2, worker_id="w2")
        await other.execution.do(newer, observed=True)
        await parts.nodes.execute("only", parts.driver, attempt=1)
        assert await parts.events("NODE_SUCCEEDED") == []
        assert len(parts.store.put_names) == 1
        assert parts.store.names == set()

    asyncio.run(body())


def test_error_of_this_package_fails_the_node_as_an_internal_error() -> None:
    async def body() -> None:
        parts = Parts(Flow("flow") >> Calls().task("only", 1), "w1")
        await parts.start()
        parts.functions.clear()  # type: ignore[attr-defined]  # the executor is given a node that it has no code for
        await parts.nodes.execute("only", parts.driver, attempt=1)
        [failed] = map(_payload, await parts.events("NODE_FAILED"))
        assert failed.error["code"] == "INTERNAL_ERROR"

    asyncio.run(body())


def test_ask_to_stop_is_refused_for_a_node_without_a_call() -> None:
    async def body() -> None:
        parts = Parts(Flow("flow") >> Calls().task("only", 1), "w1")
        await parts.start()
        assert parts.nodes.ask_to_stop("only") is False

    asyncio.run(body())


def test_error_of_this_package_does_not_fail_the_attempt_of_another_worker() -> None:
    async def body() -> None:
        flow = Flow("flow") >> Calls().task("only", 1)
        parts = Parts(flow, "w1")
        await parts.start()
        other = Parts(flow, "w2", log=parts.log)
        await other.execution.load()
        newer = StartNode(execution_id="run", actor=other.commands.actor, node_id="only", attempt=2, worker_id="w2")
        await other.execution.do(newer, observed=True)
        parts.functions.clear()  # type: ignore[attr-defined]  # the executor is given a node that it has no code for
        await parts.nodes.execute("only", parts.driver, attempt=1)
        assert await parts.events("NODE_FAILED") == []

    asyncio.run(body())

"""Runs that change hands: nothing is lost, nothing is begun too early, and nobody takes a run back."""

import asyncio
import threading
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import Engine, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.outputs import MemoryOutputStore
from pyoco_server.app.ports import OnAppend, Unsubscribe
from pyoco_server.core import NodeStatus
from tests.engine.flows import Calls, wait_until
from tests.engine.leaving import Left


def is_waiting(engine: Engine, run_id: str) -> bool:
    node = engine.get(run_id).nodes.get("w")
    return node is not None and node.status is NodeStatus.WAITING


def shown(calls: Calls) -> Any:
    return calls.task("use", lambda ctx: repr(ctx.results.get("make")))


def test_what_a_parallel_loop_made_is_made_again() -> None:
    def make(calls: Calls) -> Flow:
        made = calls.task("make", lambda ctx: (ctx.loop.index,))["$ctx.params.items as item"]
        return Flow("f") >> made >> shown(calls)

    result, calls = Left(make, {"items": [7, 8, 9]}).gone_on_with()
    assert (result.results["use"], calls.names) == ("(2,)", [*["make"] * 3, "use"])


def test_what_blocks_inside_blocks_made_is_made_again() -> None:
    def make(calls: Calls) -> Flow:
        return Flow("n") >> (calls.task("make", lambda ctx: {ctx.loop.index})[2])[2] >> shown(calls)

    result, calls = Left(make).gone_on_with()
    assert (result.results["use"], calls.names) == ("{1}", [*["make"] * 4, "use"])


def test_nothing_goes_on_while_values_are_made_again() -> None:
    go, begun = threading.Event(), threading.Event()

    def flow(calls: Calls, value: Any) -> Flow:
        return Flow("p") >> calls.task("make", value) >> wait("w") >> shown(calls)

    def slow(_: Any) -> set[int]:
        begun.set()
        go.wait(5)
        return {1}

    log = MemoryEventLog()
    with Engine(log=log) as engine:
        run_id = engine.start(flow(Calls(), lambda _: {1}))
        wait_until(lambda: is_waiting(engine, run_id))
    with Engine(log=MemoryEventLog.load(log.dump())) as engine:
        engine.take_up(flow(Calls(), slow), run_id)
        assert begun.wait(5)
        engine.resume(run_id, "w")
        threading.Timer(0.1, go.set).start()
        assert engine.wait(run_id).results["use"] == "{1}"


class BusyLog(MemoryEventLog):
    """Somebody appends in the very moment in which one begins to follow."""

    @override
    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        unsubscribe = await super().subscribe(execution_id, on_append)
        on_append(len(self._lines.get(execution_id, ())))
        await asyncio.sleep(0.01)
        return unsubscribe


def test_what_is_heard_while_a_run_is_taken_up_is_not_lost() -> None:
    def flow() -> Flow:
        calls = Calls()
        return Flow("b") >> calls.task("make", 1) >> wait("w") >> shown(calls)

    log = MemoryEventLog()
    with Engine(log=log) as engine:
        run_id = engine.start(flow())
        wait_until(lambda: is_waiting(engine, run_id))
    with Engine(log=BusyLog.load(log.dump())) as engine:
        engine.take_up(flow(), run_id)
        engine.resume(run_id, "w")
        assert engine.wait(run_id).results == {"make": 1, "w": None, "use": "1"}


def test_an_engine_whose_run_was_taken_over_does_not_take_it_back() -> None:
    log, calls, go = MemoryEventLog(), Calls(), threading.Event()

    def flow() -> Flow:
        made = Flow("t") >> calls.task("slow", lambda _: go.wait(5))
        return made >> calls.task("one") >> calls.task("two") >> calls.task("three")

    with Engine(log=log) as first, Engine(log=log) as second:
        run_id = first.start(flow())
        wait_until(lambda: calls.count("slow") == 1)
        second.take_up(flow(), run_id)
        wait_until(lambda: calls.count("slow") == 2)
        go.set()
        assert second.wait(run_id).status == first.wait(run_id).status == "COMPLETED"
    assert sorted(calls.names) == ["one", "slow", "slow", "three", "two"]


def test_a_run_that_had_ended_is_taken_up_with_its_large_results() -> None:
    log, store, flow = MemoryEventLog(), MemoryOutputStore(), Flow("l") >> Calls().task("make", "x" * 100_000)
    with Engine(log=log, outputs=store) as engine:
        run_id = engine.run(flow).run_id
    with Engine(log=MemoryEventLog.load(log.dump()), outputs=store) as engine:
        assert len(engine.wait(engine.take_up(flow, run_id)).results["make"]) == 100_000

"""Runs that change their owner: nothing is lost or begun too early, and the former owner does not return."""

import asyncio
import threading
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import Engine, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.ports import OnAppend, Unsubscribe
from pyoco_server.core import NodeStatus
from tests.app.runtime.flows import Calls, wait_until


def is_waiting(engine: Engine, run_id: str) -> bool:
    node = engine.get(run_id).nodes.get("w")
    return node is not None and node.status is NodeStatus.WAITING


def shown(calls: Calls) -> Any:
    return calls.task("use", lambda ctx: repr(ctx.results.get("make")))


class BusyLog(MemoryEventLog):
    """Reports an append in the very moment in which a caller subscribes."""

    @override
    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        unsubscribe = await super().subscribe(execution_id, on_append)
        on_append(len(self._lines.get(execution_id, ())))
        await asyncio.sleep(0.01)
        return unsubscribe


def test_an_append_during_a_takeover_is_not_lost() -> None:
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


def test_an_engine_whose_run_was_taken_over_stays_out_of_it() -> None:
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


def test_a_run_that_had_ended_is_taken_over_with_its_large_results() -> None:
    log, store, flow = MemoryEventLog(), MemoryOutputStore(), Flow("l") >> Calls().task("make", "x" * 100_000)
    with Engine(log=log, outputs=store) as engine:
        run_id = engine.run(flow).run_id
    with Engine(log=MemoryEventLog.load(log.dump()), outputs=store) as engine:
        assert len(engine.wait(engine.take_up(flow, run_id)).results["make"]) == 100_000

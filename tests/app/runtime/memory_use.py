"""Runs flows in a process of its own, and prints what it keeps after a third of them and after all."""

import gc
import tracemalloc
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

import pyoco_server.engine
from pyoco_server import Backoff, Engine, options, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.core import NodeStatus
from tests.app.runtime.flows import Calls, wait_until

ROUNDS = 75
"""Four runs each: one that goes through with retries, one resumed, one cancelled, one in blocks with large results."""
LARGE = "x" * 70_000


def one_round(engine: Engine) -> list[str]:
    calls, failures = Calls(), iter([ValueError("once")])

    def flaky(_: Any) -> str:
        for failure in failures:
            raise failure
        return LARGE

    patient = options(calls.task("flaky", flaky), retries=1, backoff=Backoff(delay_sec=0.0))
    retried = engine.run(Flow("retried") >> patient >> calls.task("after", lambda ctx: {len(ctx.results["flaky"])}))
    looped = engine.run(Flow("looped") >> calls.task("many", lambda ctx: [ctx.loop.index, LARGE])[3])
    assert (retried.status, looped.status) == ("COMPLETED", "COMPLETED")
    waiting = [engine.start(Flow("waits") >> wait("w", deadline_sec=3600) >> calls.task("last")) for _ in range(2)]
    for run_id in waiting:
        wait_until(lambda run_id=run_id: engine.get(run_id).nodes["w"].status is NodeStatus.WAITING)  # type: ignore[misc]
    engine.resume(waiting[0], "w", "go")
    engine.cancel(waiting[1])
    assert [engine.wait(run_id).status for run_id in waiting] == ["COMPLETED", "CANCELED"]
    return [retried.run_id, looped.run_id, *waiting]


def kept_bytes() -> int:
    gc.collect()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main() -> None:
    """Print the two figures, in bytes."""
    pyoco_server.engine.REMEMBERED_ENDS = 20  # results are kept up to a limit; here it is reached before the first look
    tracemalloc.start()
    log, store = MemoryEventLog(), MemoryOutputStore()
    with Engine(log=log, outputs=store) as engine:
        for number in range(1, ROUNDS + 1):
            for run_id in one_round(engine):
                del log._lines[run_id]  # what is in the log is meant to stay; here it would hide the rest
            store._kept.clear()
            if number in {ROUNDS // 3, ROUNDS}:
                print(kept_bytes())  # noqa: T201 read by the test that started this
        assert log._listeners == {}
        assert engine._runs == {}


if __name__ == "__main__":
    main()

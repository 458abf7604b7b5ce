"""What a run costs on our engine, beside pyoco's own engine and plain executors doing the same calls."""

import concurrent.futures
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.engine import Engine as PyocoEngine  # type: ignore[import-untyped]
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from pyoco.trace.backend import TraceBackend  # type: ignore[import-untyped]

from pyoco_server import Engine

RUNS = 200
FAN_SIZES = (100, 300, 1_000)
ROUNDS = 3


class Quiet(TraceBackend):  # type: ignore[misc]  # an untyped base
    """Says nothing, so that printing is not what is measured."""

    def on_flow_start(self, *_: object, **__: object) -> None: ...  # noqa: D102
    def on_flow_end(self, *_: object, **__: object) -> None: ...  # noqa: D102
    def on_node_start(self, *_: object, **__: object) -> None: ...  # noqa: D102
    def on_node_end(self, *_: object, **__: object) -> None: ...  # noqa: D102
    def on_node_error(self, *_: object, **__: object) -> None: ...  # noqa: D102


def nothing() -> None:
    """A task that does nothing."""


async def nothing_async() -> None:
    """The same as a coroutine."""


def chain(function: Callable[[], Any]) -> Flow:
    """Three tasks one after the other."""
    flow = Flow("three")
    for number in range(3):
        flow >> TaskWrapper(Task(func=function, name=f"task{number}"))
    return flow


def fan(size: int, function: Callable[[], Any]) -> Flow:
    """So many tasks side by side."""
    return Flow("fan") >> [TaskWrapper(Task(func=function, name=f"task{number}")) for number in range(size)]


def best(work: Callable[[], object]) -> float:
    """Seconds of the shortest round."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch), Engine() as ours:
        theirs = PyocoEngine(trace_backend=Quiet())
        with contextlib.redirect_stdout(io.StringIO()):
            pyoco = best(lambda: [theirs.run(chain(nothing)) for _ in range(RUNS)]) / RUNS
        one = best(lambda: [ours.run(chain(nothing)) for _ in range(RUNS)]) / RUNS
        one_async = best(lambda: [ours.run(chain(nothing_async)) for _ in range(RUNS)]) / RUNS

        def many() -> None:
            for run_id in [ours.start(chain(nothing)) for _ in range(RUNS)]:
                ours.wait(run_id)

        together = best(many) / RUNS
        print(f"three no-op tasks, milliseconds a run ({os.cpu_count()} cores)")
        print(f"  pyoco's engine, one at a time        {pyoco * 1e3:8.2f}")
        print(f"  ours, one at a time                  {one * 1e3:8.2f}   ratio {one / pyoco:5.2f}")
        print(f"  ours, coroutines, one at a time      {one_async * 1e3:8.2f}   ratio {one_async / pyoco:5.2f}")
        print(f"  ours, {RUNS} at once                   {together * 1e3:8.2f}   ratio {together / pyoco:5.2f}")
        print("\nfan-out, microseconds a task")
        for size in FAN_SIZES:
            print_fan(ours, size)


def print_fan(ours: Engine, size: int) -> None:
    """One line a size."""
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        floor = best(lambda: [future.result() for future in [pool.submit(nothing) for _ in range(size)]]) / size
    threads = best(lambda: ours.run(fan(size, nothing))) / size
    coroutines = best(lambda: ours.run(fan(size, nothing_async))) / size
    print(
        f"  {size:>6,} tasks: concurrent.futures {floor * 1e6:7.1f}, ours in threads {threads * 1e6:8.1f}, "
        f"ours as coroutines {coroutines * 1e6:8.1f}"
    )


if __name__ == "__main__":
    main()

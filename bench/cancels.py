"""How long a cancel takes to reach a plain function in a thread: from the request to CANCELLED.

``python -m bench.cancels``: 100 runs of each kind of work, 1,000 in all, with p50, p99 and the longest of each.
"""

import logging
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import Engine

RUNS = 100
_LOCK, _CONDITION, _EVENT = threading.Lock(), threading.Condition(), threading.Event()
_LOG = logging.getLogger("bench.cancels")
_QUEUE: "queue.Queue[int]" = queue.Queue()


def _holds_lock() -> None:
    with _LOCK:
        sum(range(100))


def _imports() -> None:
    sys.modules.pop("colorsys", None)
    import colorsys  # noqa: F401, PLC0415 that is what is measured


def _passes_on() -> None:
    _QUEUE.put(1)
    _QUEUE.get()


def _notifies() -> None:
    with _CONDITION:
        _CONDITION.notify_all()


WORKS: Mapping[str, Callable[[], object]] = {
    "sleeps 1 ms": lambda: time.sleep(0.001),
    "sleeps 50 ms": lambda: time.sleep(0.05),
    "counts": lambda: 1 + 1,
    "sums": lambda: sum(number * number for number in range(1_000)),
    "with lock": _holds_lock,
    "logs to a file": lambda: _LOG.warning("a line of %s", "a task"),
    "imports": _imports,
    "Event.wait": lambda: _EVENT.wait(0.01),
    "queue": _passes_on,
    "Condition": _notifies,
}


def measure(engine: Engine, work: Callable[[], object], runs: int) -> list[float]:
    """Seconds from the request of a cancel to the end of the run, one after the other."""
    took = list[float]()
    for _ in range(runs):
        begun = threading.Event()

        def task(begun: threading.Event = begun) -> None:
            begun.set()
            while True:
                work()

        run_id = engine.start(Flow("endless") >> TaskWrapper(Task(func=task, name="task")))
        begun.wait()
        began = time.perf_counter()
        engine.cancel(run_id)
        status = engine.wait(run_id).status
        took.append(time.perf_counter() - began)
        if status != "CANCELED":
            raise AssertionError(f"the run ended {status}")
    return sorted(took)


def main() -> None:
    """Measure and print."""
    with tempfile.NamedTemporaryFile() as file, Engine(cancel_grace_sec=600) as engine:
        _LOG.propagate = False
        _LOG.addHandler(logging.FileHandler(file.name))
        everything = list[float]()
        print(f"{'work':16} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
        for name, work in WORKS.items():
            took = measure(engine, work, RUNS)
            everything += took
            _print(name, took)
        _print("all", sorted(everything))


def _print(name: str, took: list[float]) -> None:
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    print(f"{name:16} {statistics.median(took) * 1e3:8.1f} {p99 * 1e3:8.1f} {took[-1] * 1e3:8.1f}")


if __name__ == "__main__":
    main()

"""Flows that the engine's tests run; each test builds its own, since pyoco's tasks are global."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import wait
from tests.waiting import PATIENCE_SEC


class Calls:
    """Counts how often each task was called, across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.names: list[str] = []

    def task(self, name: str, value: Callable[..., Any] | Any = None) -> TaskWrapper:
        """Return a task that counts its call and returns ``value``, or the result of calling it."""

        def body(ctx: Any) -> Any:
            with self._lock:
                self.names.append(name)
            return value(ctx) if callable(value) else value

        return TaskWrapper(Task(func=body, name=name))

    def count(self, name: str) -> int:
        """How often the task was called."""
        return self.names.count(name)


def fan_flow(calls: Calls) -> Flow:
    """A fork, a join, and a task behind it."""
    total = calls.task("total", lambda ctx: ctx.results["left"] + ctx.results["right"])
    flow = Flow("fan")
    return (
        flow
        >> calls.task("seed", lambda ctx: ctx.params["n"])
        >> [
            calls.task("left", lambda ctx: ctx.results["seed"] + 1),
            calls.task("right", lambda ctx: ctx.results["seed"] + 2),
        ]
        >> total
    )


def program_flow(calls: Calls) -> Flow:
    """Loops, a choice, and a result built up on the way."""

    def grow(ctx: Any) -> int:
        ctx_results = ctx.results
        return int(ctx_results.get("grow", 0)) + int(ctx.get_var("item", 1))

    flow = Flow("program")
    big, small = calls.task("big", "big"), calls.task("small", "small")
    flow >> calls.task("first", 1) >> calls.task("grow", grow)["$ctx.params.items as item"]
    flow >> switch("$ctx.results.grow > 3")[True >> big, False >> small]
    flow >> calls.task("tick", lambda ctx: ctx.loop.iteration) % ("$ctx.results.tick >= 2", 5)
    return flow


def opaque_flow(calls: Calls) -> Flow:
    """A value that JSON cannot represent, used two steps later."""
    flow = Flow("opaque")
    return (
        flow
        >> calls.task("make", lambda _: {1, 2, 3})
        >> calls.task("pause", 0)
        >> calls.task("use", lambda ctx: sorted(ctx.results["make"]))
    )


def approval_flow(calls: Calls) -> Flow:
    """Waits for an answer between two tasks."""
    flow = Flow("approval")
    return (
        flow
        >> calls.task("draft", "text")
        >> wait("approval", prompt={"question": "publish?"})
        >> calls.task("publish", lambda ctx: ctx.results["approval"])
    )


def wait_until(predicate: Callable[[], bool], timeout: float = PATIENCE_SEC) -> None:
    """Come back when the predicate holds; fail if it does not in time."""
    end = time.monotonic() + timeout
    for pause in itertools.repeat(0.002):
        if predicate():
            return
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(pause)

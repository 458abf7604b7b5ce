"""Tasks that the engine runs in child processes, in a module that a child can import."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any


async def doubled(x: int) -> int:
    """Needs an event loop in the child."""
    await asyncio.sleep(0)
    return 2 * x


class Adder:
    """A callable object, with and without state."""

    def __init__(self, more: int) -> None:
        self.more = more

    async def __call__(self, x: int) -> int:
        await asyncio.sleep(0)
        return x + self.more

    def add(self, x: int) -> int:
        return x + self.more


def oddly_named(self: int, function: int, isolation: int, kwargs: int, ctx: Any) -> list[int]:
    """Takes what our own functions take too."""
    return [self, function, isolation, kwargs, ctx.params["self"]]


def by_position(ctx: Any, x: int, /, *rest: int) -> list[int]:
    return [ctx.params["x"], x, *rest]


def _mark(folder: str, name: str, text: str = "") -> None:
    Path(folder, name).write_text(text)


async def wait_to_be_cancelled(ctx: Any, marks: str) -> None:
    """Writes down that it runs, and that it was cancelled and could clean up."""
    _mark(marks, "running", str(os.getpid()))
    try:
        await asyncio.sleep(60)
    finally:
        _mark(marks, "cancelled", str(ctx.is_cancelled))


async def swallow(marks: str) -> None:
    """Takes no notice of a cancel."""
    _mark(marks, "running", str(os.getpid()))
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            _mark(marks, "cancelled")


def names_of_results(ctx: Any) -> list[str]:
    """Looks at the results without reading one."""
    return sorted(ctx.results)


def read_good(ctx: Any) -> Any:
    return [ctx.results["good"], ctx.get_result("good"), ctx.params["n"]]


def read_result(ctx: Any) -> Any:
    return ctx.results["lock"]


def get_result(ctx: Any) -> Any:
    return ctx.get_result("lock")


def read_all_results(ctx: Any) -> Any:
    return list(ctx.results.values())


def copy_results(ctx: Any) -> Any:
    return dict(ctx.results)


def pop_result(ctx: Any) -> Any:
    return ctx.results.pop("lock")


def replace_result(ctx: Any) -> Any:
    """What stays behind can be put in by the task itself."""
    ctx.results["lock"] = 5
    return ctx.results["lock"]


def iteration(ctx: Any) -> Any:
    return ctx.loop.iteration


def item(ctx: Any) -> Any:
    return ctx.loop.item


def report_nonsense(ctx: Any) -> None:
    ctx.progress(200)


def shielded(ctx: Any, folder: str) -> None:
    """Holds a shielded section open until it is told to go on."""
    with ctx.shield():
        Path(folder, "begun").touch()
        while not Path(folder, "go_on").exists():
            time.sleep(0.01)
        Path(folder, "finished").touch()
    time.sleep(3600)


def flagged(ctx: Any, folder: str) -> str:
    """Looks at the flag, and takes longer to end than a process is given."""
    Path(folder, "begun").touch()
    while not ctx.is_cancelled:
        time.sleep(0.01)
    time.sleep(1.0)
    return "in its own time"

"""The flows of simulated workers: coroutines, so that no thread is needed; each reports its calls to the world."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, Final

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import options, wait
from tests.sim.loop import SimLoop

Then = Callable[[int], Awaitable[object]]

LONG_SEC: Final = 4.0
"""Longer than the ack wait."""


def _task(name: str, then: Then) -> TaskWrapper:
    async def body(ctx: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return await then(loop.at_work(ctx.run_context.run_id, name))

    return TaskWrapper(Task(func=body, name=name))


def _taking(seconds: float) -> Then:
    async def then(time: int) -> int:
        await asyncio.sleep(seconds)
        return time

    return then


class Opaque:
    """A value of a type without a tag: it is pickled."""

    def __init__(self, time: int) -> None:
        self.time = time

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.time == self.time

    __hash__ = None  # type: ignore[assignment]


def _values(time: int) -> dict[Any, Any]:
    """A value that JSON cannot represent; each call of the task would return another one."""
    return {1: (time, {time}), "when": datetime(2026, 1, 1, tzinfo=UTC), "of": [b"x", Decimal("1.10"), float("inf")]}


async def _many_types(time: int) -> object:
    await asyncio.sleep(0.05)
    return _values(time)


async def _opaque(time: int) -> object:
    await asyncio.sleep(0.05)
    return [_values(time), Opaque(time)]


async def _lock(_time: int) -> object:
    """A value that cannot be stored."""
    await asyncio.sleep(0.05)
    return threading.Lock()


def _checked(name: str, seconds: float, is_right: Callable[[Any], bool]) -> TaskWrapper:
    """A task that reads the result of ``made``, and fails if it is not what that returned."""

    async def body(ctx: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.at_work(ctx.run_context.run_id, name)
        await asyncio.sleep(seconds)
        if not is_right(ctx.results["made"]):
            raise ValueError(f"not what was made: {ctx.results['made']!r}")
        return {seconds}

    return TaskWrapper(Task(func=body, name=name))


def _is_typed(value: Any) -> bool:
    time = value[1][0]
    return bool(value == _values(time)) and type(value[1]) is tuple and type(value["of"][0]) is bytes


def _is_opaque(value: Any) -> bool:
    return _is_typed(value[0]) and bool(value[1] == Opaque(value[0][1][0]))


def _is_lock(value: Any) -> bool:
    return isinstance(value, type(threading.Lock()))


async def _failing(_time: int) -> None:
    await asyncio.sleep(0.1)
    raise ValueError("no good")


async def _failing_first(time: int) -> int:
    await asyncio.sleep(0.1)
    if time == 1:
        raise ValueError("not yet")
    return time


async def _stubborn(_time: int) -> None:
    try:
        await asyncio.sleep(LONG_SEC)
    except asyncio.CancelledError:
        await asyncio.sleep(LONG_SEC)


def _quick(name: str) -> TaskWrapper:
    return _task(name, _taking(0.05))


Steps = list[Callable[[], Any]]


def _retried() -> TaskWrapper:
    return options(_task("retried", _failing_first), retries=2, backoff=0.2)


def _quickly(*names: str) -> Steps:
    return [partial(_quick, name) for name in names]


def _reading(check: Callable[[object], bool], *steps: tuple[str, float]) -> Steps:
    return [partial(_checked, name, sec, check) for name, sec in steps]


_STEPS: Final[dict[str, Steps]] = {
    "typed": [lambda: _task("made", _many_types), lambda: wait("ok"), *_reading(_is_typed, ("first", 1.0))],
    "opaque": [lambda: _task("made", _opaque), *_reading(_is_opaque, ("first", 1.5), ("then", 0.1))],
    "lost": [lambda: _task("made", _lock), *_reading(_is_lock, ("first", 1.5), ("then", 0.1))],
    "again": [
        lambda: options(_task("made", _lock), recompute=True),
        lambda: wait("ok"),
        *_reading(_is_lock, ("first", 1.5), ("then", 0.1)),
    ],
    "one": _quickly("only"),
    "chain": [*_quickly("a"), lambda: _task("b", _taking(0.8)), *_quickly("c")],
    "fan": [*_quickly("seed"), lambda: [_quick("left"), _task("right", _taking(0.5))], *_quickly("total")],
    "long": [lambda: _task("long", _taking(LONG_SEC)), *_quickly("after")],
    "stubborn": [lambda: _task("stubborn", _stubborn), *_quickly("after")],
    "failing": [*_quickly("before"), lambda: _task("bad", _failing)],
    "flaky": [_retried, *_quickly("after")],
    "approval": [*_quickly("draft"), lambda: wait("approval"), *_quickly("publish")],
    "twofold": [lambda: [wait("left"), _task("right", _taking(1.5))], *_quickly("total")],
    "patient": [lambda: wait("nod", deadline_sec=3.0, default=1), *_quickly("after")],
    "impatient": [lambda: wait("nod", deadline_sec=1.0), *_quickly("after")],
    "rounds": [*_quickly("before"), lambda: wait("nod")["$ctx.params.items as item"], *_quickly("after")],
}


def _made(name: str, steps: Steps) -> Flow:
    flow = Flow(name)
    for step in steps:
        flow = flow >> step()
    return flow


FLOWS: Final = {name: _made(name, steps) for name, steps in _STEPS.items()}
_EXTRA: Final = _quickly("extra", "renamed")
WHOLE: Final = {name: _made(name, [*steps, *_EXTRA]) for name, steps in _STEPS.items()}
"""Flows with every task of every edit: they have the code of all runs."""


def edited(chance: Random) -> dict[str, Flow]:
    """Return the flows of one deploy: some have a task more or less, or a renamed one; some flows are missing."""
    edits: list[Callable[[Steps], Steps]] = [
        *[lambda steps: steps] * 2,
        lambda steps: steps[:-1] or steps,
        lambda steps: [*steps, *_EXTRA[:1]],
        lambda steps: [*_EXTRA[:1], *steps],
        lambda steps: [*steps[:-1], *_EXTRA[1:]],
        lambda _: [],
    ]
    made = {name: chance.choice(edits)(steps) for name, steps in _STEPS.items()}
    return {name: _made(name, steps) for name, steps in made.items() if steps}


FAILING: Final = frozenset({"failing", "impatient", "lost"})
"""Flows that may end FAILED although nothing went wrong with the platform."""

WAITING: Final = ("again", "approval", "impatient", "patient", "rounds", "twofold", "typed")
"""Flows that wait for a user."""

PARAMS: Final = {"items": [1, 2]}

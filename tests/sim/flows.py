"""The flows simulated workers run: coroutines, so that no thread is needed; each tells the world that it was called."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

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


def _flows() -> dict[str, Flow]:
    retried = options(_task("retried", _failing_first), retries=2, backoff=0.2)
    made = [
        Flow("one") >> _quick("only"),
        Flow("chain") >> _quick("a") >> _task("b", _taking(0.8)) >> _quick("c"),
        Flow("fan") >> _quick("seed") >> [_quick("left"), _task("right", _taking(0.5))] >> _quick("total"),
        Flow("long") >> _task("long", _taking(LONG_SEC)) >> _quick("after"),
        Flow("stubborn") >> _task("stubborn", _stubborn) >> _quick("after"),
        Flow("failing") >> _quick("before") >> _task("bad", _failing),
        Flow("flaky") >> retried >> _quick("after"),
        Flow("approval") >> _quick("draft") >> wait("approval") >> _quick("publish"),
        Flow("twofold") >> [wait("left"), _task("right", _taking(1.5))] >> _quick("total"),
        Flow("patient") >> wait("nod", deadline_sec=3.0, default=1) >> _quick("after"),
        Flow("impatient") >> wait("nod", deadline_sec=1.0) >> _quick("after"),
        Flow("rounds") >> _quick("before") >> wait("nod")["$ctx.params.items as item"] >> _quick("after"),
    ]
    return {flow.name: flow for flow in made}


FLOWS: Final = _flows()
FAILING: Final = frozenset({"failing", "impatient"})
"""Flows that may end FAILED although nothing went wrong with the platform."""

WAITING: Final = ("approval", "impatient", "patient", "rounds", "twofold")
"""Flows in which somebody is waited for."""

PARAMS: Final = {"items": [1, 2]}

"""The flows the benchmarks submit, for ``pyoco-worker --flows bench.flows``."""

import asyncio
import os
import time

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.context import Context  # type: ignore[import-untyped]
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from bench.peers.programs.pyoco_flows import nothing, three
from pyoco_server import wait

HANGS_VARIABLE = "BENCH_HANGS"
"""Set to 1 for a worker that will be killed: it keeps its runs."""
SIZES = (1, 10, 100, 1_000)
LONG_SEC = 3_600.0
LOOK_SEC = 0.002


async def hold() -> None:
    """Run until it is cancelled."""
    await asyncio.sleep(LONG_SEC)


def hold_thread(ctx: Context) -> None:
    """The same in a thread, which looks every now and then."""
    while not ctx.is_cancelled:
        time.sleep(LOOK_SEC)


async def hang_here() -> None:
    """Run for ever in the worker that is to be killed, and end at once in any other."""
    if os.environ.get(HANGS_VARIABLE) == "1":
        await asyncio.sleep(LONG_SEC)


def _task(name: str, function: object) -> TaskWrapper:
    return TaskWrapper(Task(func=function, name=name))


def _chain(size: int) -> Flow:
    flow = Flow(f"chain-{size}")
    for number in range(size):
        flow >> _task(f"task{number}", nothing)
    return flow


def _fan(size: int) -> Flow:
    return Flow(f"fan-{size}") >> [_task(f"task{number}", nothing) for number in range(size)]


held = Flow("held") >> _task("hold", hold)
held_thread = Flow("held-thread") >> _task("hold_thread", hold_thread)
hanging = Flow("hanging") >> _task("hang_here", hang_here)
waiting = Flow("waiting") >> wait("approval") >> _task("after", nothing)
chain_1, chain_10, chain_100, chain_1000 = map(_chain, SIZES)
fan_1, fan_10, fan_100, fan_1000 = map(_fan, SIZES)

__all__ = [
    "chain_1",
    "chain_10",
    "chain_100",
    "chain_1000",
    "fan_1",
    "fan_10",
    "fan_100",
    "fan_1000",
    "hanging",
    "held",
    "held_thread",
    "three",
    "waiting",
]

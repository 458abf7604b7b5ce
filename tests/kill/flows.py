"""The flows the workers of these tests run. Every call of a task leaves a line, so that we know what ran when."""

import asyncio
import ctypes
import os
import random
import time
from pathlib import Path
from typing import Any

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import switch  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import options, wait

TRACES = "KILL_TEST_TRACES"
"""The variable that says in which directory the lines go."""


def begin(ctx: Any, node: str) -> int:
    """Leave a line about a call that begins now, and return how many calls of the node there have been with it."""
    began_at = time.time()  # first of all: a process can be stopped at any line
    file = Path(os.environ[TRACES]) / ctx.params["run"]
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{node} {os.getpid()} {began_at}\n".encode())
    return sum(line.startswith(f"{node} ") for line in file.read_text().splitlines())


def work_a_little() -> None:
    time.sleep(random.uniform(0.002, 0.04))


@task  # type: ignore[untyped-decorator]
def first(ctx: Any) -> int:
    begin(ctx, "first")
    work_a_little()
    return 1


@task  # type: ignore[untyped-decorator]
def second(ctx: Any) -> int:
    begin(ctx, "second")
    work_a_little()
    return int(ctx.results["first"]) + 1


@task  # type: ignore[untyped-decorator]
def third(ctx: Any) -> int:
    begin(ctx, "third")
    work_a_little()
    return int(ctx.results["second"]) + 1


@task  # type: ignore[untyped-decorator]
def left(ctx: Any) -> int:
    begin(ctx, "left")
    work_a_little()
    return 10


@task  # type: ignore[untyped-decorator]
def middle(ctx: Any) -> int:
    begin(ctx, "middle")
    work_a_little()
    return 20


@task  # type: ignore[untyped-decorator]
async def right(ctx: Any) -> int:
    begin(ctx, "right")
    await asyncio.sleep(random.uniform(0.002, 0.04))
    return 30


@task  # type: ignore[untyped-decorator]
def total(ctx: Any) -> int:
    begin(ctx, "total")
    return sum(int(ctx.results[name]) for name in ("left", "middle", "right"))


@task  # type: ignore[untyped-decorator]
def flaky(ctx: Any) -> str:
    if begin(ctx, "flaky") < 3:
        raise ValueError("not yet")
    return "at last"


@task  # type: ignore[untyped-decorator]
def apart(ctx: Any) -> int:
    begin(ctx, "apart")
    work_a_little()
    return os.getpid()


@task  # type: ignore[untyped-decorator]
async def rest(ctx: Any) -> str:
    begin(ctx, "rest")
    await asyncio.sleep(random.uniform(0.01, 0.08))
    return "rested"


@task  # type: ignore[untyped-decorator]
def large(ctx: Any) -> str:
    begin(ctx, "large")
    return "x" * 100_000


@task  # type: ignore[untyped-decorator]
def measure(ctx: Any) -> int:
    begin(ctx, "measure")
    return len(ctx.results["large"])


@task  # type: ignore[untyped-decorator]
def boom(ctx: Any) -> None:
    begin(ctx, "boom")
    raise ValueError("no good")


@task  # type: ignore[untyped-decorator]
def answer(ctx: Any) -> Any:
    begin(ctx, "answer")
    work_a_little()
    return ctx.results["approval"]


@task  # type: ignore[untyped-decorator]
def linger(ctx: Any) -> int:
    begin(ctx, "linger")
    time.sleep(random.uniform(0.5, 1.5))
    return 1


@task  # type: ignore[untyped-decorator]
def slow(ctx: Any) -> str:
    """The first worker to have it takes half a minute, unless asked to stop; any other is quick."""
    if begin(ctx, "slow") == 1:
        end = time.monotonic() + 30
        while time.monotonic() < end and not ctx.is_cancelled:
            time.sleep(0.01)
    return "done"


@task  # type: ignore[untyped-decorator]
def deaf(ctx: Any) -> str:
    """Like ``slow``, and it ignores the request to stop."""
    if begin(ctx, "deaf") == 1:
        time.sleep(30)
    return "done"


@task  # type: ignore[untyped-decorator]
async def sleeper(ctx: Any) -> str:
    if begin(ctx, "sleeper") == 1:
        await asyncio.sleep(30)
    return "done"


@task  # type: ignore[untyped-decorator]
def quick(ctx: Any) -> int:
    return int(ctx.params.get("n", 0))


@task  # type: ignore[untyped-decorator]
def early() -> int:
    return os.getpid()


@task  # type: ignore[untyped-decorator]
def leave(ctx: Any) -> None:
    begin(ctx, "leave")
    os._exit(1)


@task  # type: ignore[untyped-decorator]
def segfault(ctx: Any) -> None:
    begin(ctx, "segfault")
    ctypes.string_at(0)


@task  # type: ignore[untyped-decorator]
def hungry(ctx: Any) -> int:
    begin(ctx, "hungry")
    return len(bytearray(1 << 40))


_HIT_AT_RANDOM = (first, second, third, left, middle, right, total, flaky, apart, large, measure, answer, rest, linger)
for _task in _HIT_AT_RANDOM:
    options(_task, max_crashes=1000)  # tests kill workers at random moments, and may hit the same task many times


class Ending:
    """To load its pickle ends the process; to compare it does, too."""

    @override
    def __reduce__(self) -> Any:
        return os._exit, (1,)

    @override
    def __eq__(self, other: object) -> bool:
        os._exit(1)

    __hash__ = object.__hash__


@task  # type: ignore[untyped-decorator]
def ending(ctx: Any) -> Ending:
    begin(ctx, "ending")
    return Ending()


@task  # type: ignore[untyped-decorator]
def opening(ctx: Any, ending: Any) -> int:  # noqa: ARG001 to load it is enough
    begin(ctx, "opening")
    return 1


opened = Flow("opened") >> ending >> wait("approval") >> opening
compared = Flow("compared") >> ending >> wait("approval") >> switch("$ctx.results.ending")[1 >> early]
chain = Flow("chain") >> first >> second >> third
fan = Flow("fan") >> first >> [left, middle, right] >> total
retried = Flow("retried") >> first >> options(flaky, retries=50, backoff=0.02)
ask = Flow("ask") >> first >> wait("approval", prompt={"question": "go on?"}) >> answer
processed = Flow("processed") >> first >> options(apart, isolation="process")
rested = Flow("rested") >> rest
stored = Flow("stored") >> large >> measure
lingering = Flow("lingering") >> first >> linger >> second
failing = Flow("failing") >> first >> boom
slow_flow = Flow("slow") >> slow
deaf_flow = Flow("deaf") >> deaf
sleeping = Flow("sleeping") >> sleeper
noop = Flow("noop") >> quick
leaving = Flow("leaving") >> leave
crashing = Flow("crashing") >> segfault
devouring = Flow("devouring") >> hungry

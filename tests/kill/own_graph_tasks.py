"""The functions of the random flows that workers run in ``test_own_graph``: every call leaves a line."""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.kill.flows import TRACES

WORKER: Final = "KILL_TEST_WORKER"
"""The variable that names the worker in which a call happens."""


class CallLine(NamedTuple):
    """A call as it was recorded when it began."""

    task: str
    rounds: tuple[int, ...]
    """The loops around it, from the outside in."""
    worker: str
    at: float


def trace_of(folder: Path, run_id: str) -> Path:
    """The file with the calls of a run."""
    return folder / f"{run_id}.calls"


def calls_in(file: Path) -> list[CallLine]:
    """The calls of a run, in the order in which they were recorded."""
    found: list[CallLine] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        task, rounds, worker, at = line.split("|")
        found.append(CallLine(task, tuple(map(int, rounds.split())), worker, float(at)))
    return found


def _begin(ctx: Any, task: str, *, fails: bool, flaky: bool) -> None:
    """Record a call; raise if it is to fail."""
    began_at = time.time()  # first of all: a process can be stopped at any line
    rounds: Sequence[int] = [frame.index for frame in ctx.loops]
    file = trace_of(Path(os.environ[TRACES]), ctx.run_context.run_id)
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{task}|{' '.join(map(str, rounds))}|{os.environ[WORKER]}|{began_at!r}\n".encode())
    is_first = sum((line.task, line.rounds) == (task, tuple(rounds)) for line in calls_in(file)) == 1
    if fails or (flaky and is_first):
        raise ValueError("no good")


def called(ctx: Any, task: str, n: Any = None, given: Any = None, fails: bool = False, flaky: bool = False) -> str:
    """A task in a thread."""
    _begin(ctx, task, fails=fails, flaky=flaky)
    time.sleep(random.uniform(0.0, 0.06))
    return f"{task} {n} {given}"


async def awaited(
    ctx: Any, task: str, n: Any = None, given: Any = None, fails: bool = False, flaky: bool = False
) -> str:
    """A task on the event loop."""
    _begin(ctx, task, fails=fails, flaky=flaky)
    await asyncio.sleep(random.uniform(0.0, 0.06))
    return f"{task} {n} {given}"

"""Flows that both versions run. Every call of a task writes a line, so that the test can count calls."""

import os
import time
from pathlib import Path
from typing import Any

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import options, wait

CALLS = "UPGRADE_TEST_CALLS"
"""The variable with the directory of these lines."""
LONG_SEC = 40.0


def called(ctx: Any, name: str) -> int:
    """Record a call, and return how many calls of this task the run has had."""
    file = Path(os.environ[CALLS]) / f"{ctx.params['run']}.{name}"
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{os.getpid()}\n".encode())
    return len(file.read_bytes().splitlines())


@task  # type: ignore[untyped-decorator]
def first(ctx: Any) -> int:
    return called(ctx, "first")


@task  # type: ignore[untyped-decorator]
def slow(ctx: Any) -> str:
    """Take long in the first call."""
    if called(ctx, "slow") == 1:
        end = time.monotonic() + LONG_SEC
        while time.monotonic() < end and not ctx.is_cancelled:
            time.sleep(0.01)
    return "done"


@task  # type: ignore[untyped-decorator]
def deaf(ctx: Any) -> None:
    """Take long, and ignore a cancel."""
    called(ctx, "deaf")
    time.sleep(LONG_SEC)


@task  # type: ignore[untyped-decorator]
def flaky(ctx: Any) -> str:
    if called(ctx, "flaky") == 1:
        raise ValueError("not yet")
    return "at last"


@task  # type: ignore[untyped-decorator]
def large(ctx: Any) -> str:
    called(ctx, "large")
    return "x" * 100_000


@task  # type: ignore[untyped-decorator]
def last(ctx: Any) -> int:
    """Return the size of all earlier results."""
    called(ctx, "last")
    return sum(len(str(value)) for value in ctx.results.values())


finished = Flow("finished") >> first >> last
at_work = Flow("at_work") >> first >> slow >> last
asking = Flow("asking") >> first >> wait("approval", key="k", prompt={"question": "go on?"}) >> last
asking_twice = Flow("asking_twice") >> first >> wait("ask")[2] >> last
stored = Flow("stored") >> large >> wait("approval") >> last
due = Flow("due") >> first >> wait("approval", deadline_sec=4, default="late") >> last
retried = Flow("retried") >> first >> options(flaky, retries=3, backoff=5.0) >> last
stubborn = Flow("stubborn") >> first >> deaf >> last

"""Flows that both versions know. Every call of a task leaves a line, so that we know what ran how often."""

import os
import time
from pathlib import Path
from typing import Any

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import options, wait

CALLS = "UPGRADE_TEST_CALLS"
"""The variable that says in which directory the lines go."""
LONG_SEC = 40.0


def called(ctx: Any, name: str) -> int:
    """Note a call, and return how many of this task there have been in the run with it."""
    file = Path(os.environ[CALLS]) / f"{ctx.params['run']}.{name}"
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{os.getpid()}\n".encode())
    return len(file.read_bytes().splitlines())


@task  # type: ignore[untyped-decorator]
def first(ctx: Any) -> int:
    return called(ctx, "first")


@task  # type: ignore[untyped-decorator]
def slow(ctx: Any) -> str:
    """Whoever calls it first would take long."""
    if called(ctx, "slow") == 1:
        end = time.monotonic() + LONG_SEC
        while time.monotonic() < end and not ctx.is_cancelled:
            time.sleep(0.01)
    return "done"


@task  # type: ignore[untyped-decorator]
def deaf(ctx: Any) -> None:
    """Takes long, and does not hear."""
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
    """How much it can see of what was done before."""
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

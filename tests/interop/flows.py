"""The flows that workers of this version and of the public releases run. Every call of a task leaves a line."""

import os
import time
from pathlib import Path
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

TRACES = "INTEROP_TEST_TRACES"
"""The variable that says in which directory the lines go."""
LONG_SEC = 60.0
"""How long a task works that only a cancel ends."""


def _called(ctx: Any, name: str) -> None:
    with (Path(os.environ[TRACES]) / f"{ctx.params['run']}.{name}").open("ab", buffering=0) as lines:
        lines.write(f"{os.getpid()} {time.time()}\n".encode())


def first(ctx: Any) -> str:
    """Say which parameters it was called with."""
    _called(ctx, "first")
    return str(ctx.params["run"])


def long(ctx: Any) -> str:
    """Work until the run is cancelled."""
    _called(ctx, "long")
    until = time.monotonic() + LONG_SEC
    while time.monotonic() < until and not ctx.is_cancelled:
        time.sleep(0.02)
    return "done"


def last(ctx: Any) -> str:
    _called(ctx, "last")
    return "done"


def fails(ctx: Any) -> str:
    _called(ctx, "fails")
    raise ValueError("no luck")


def _flow(name: str, *functions: Any) -> Flow:
    flow = Flow(name)
    for function in functions:
        flow >> TaskWrapper(Task(func=function, name=function.__name__))
    return flow


short = _flow("short", first, last)
cancelled = _flow("cancelled", first, long, last)
failing = _flow("failing", first, fails)
FLOWS = {flow.name: flow for flow in (short, cancelled, failing)}


def resolve(flow_name: str) -> Flow:
    """The resolver of the public worker, which keeps nothing of a flow between two runs."""
    made = {"short": (first, last), "cancelled": (first, long, last), "failing": (first, fails)}
    return _flow(flow_name, *made[flow_name])

"""The flow ``three`` for pyoco's workers: three tasks that do nothing."""

import functools
from collections.abc import Callable

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]


async def nothing() -> None:
    """A task for our worker, which calls coroutines on its loop."""


def nothing_plain() -> None:
    """A task for the public worker, which knows plain functions only."""


def chain(function: Callable[[], object]) -> Flow:
    """Three of them, one after the other."""
    flow = Flow("three")
    for number in range(3):
        flow >> TaskWrapper(Task(func=function, name=f"task{number}"))
    return flow


three = chain(nothing)


@functools.cache
def resolve_plain(flow_name: str) -> Flow:
    """The public worker's resolver."""
    if flow_name != "three":
        raise KeyError(flow_name)
    return chain(nothing_plain)

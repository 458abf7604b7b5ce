"""Nobody waits long for NATS: whoever asks while it is away is told so, and can try again."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from pyoco_server.app.ports import UnavailableError

T = TypeVar("T")
LONGEST_SEC: Final = 2.3
"""A change takes no longer, or is given up. Reading has one request's time, and fails with the first."""

_left: set[asyncio.Task[Any]] = set()


async def in_time(change: Coroutine[Any, Any, T]) -> T:
    """What the change returns or raises; UnavailableError if it takes too long.

    Then it is cancelled, and cleans up after itself on its own time: nobody waits for that.
    """
    task = asyncio.create_task(change)
    try:
        done, _ = await asyncio.wait({task}, timeout=LONGEST_SEC)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if not done:
        _leave(task)
        raise UnavailableError(f"NATS did not answer within {LONGEST_SEC:g} s")
    return task.result()


def _leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _left.add(task)
    task.add_done_callback(_gone)


def _gone(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # seen; it was told as an outage already

"""Nobody waits long for NATS: whoever asks while it is away is told so, and can try again."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from pyoco_server.app.ports import UnavailableError

T = TypeVar("T")
FAILING_SEC: Final = 10.0
"""So long a write that failed counts as a sign, if none has succeeded since."""
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


class Writes:
    """Do changes get through? A NATS that answers may still have lost the nodes it needs to store anything."""

    def __init__(self) -> None:
        self._failed_at: float | None = None

    async def noted(self, change: Coroutine[Any, Any, T]) -> T:
        """What the change returns or raises, within the time there is for it; how it ended is remembered."""
        try:
            done = await in_time(change)
        except UnavailableError:
            self._failed_at = asyncio.get_running_loop().time()
            raise
        self._failed_at = None
        return done

    @property
    def are_failing(self) -> bool:
        """Has one failed just now, and none succeeded since?"""
        return self._failed_at is not None and asyncio.get_running_loop().time() - self._failed_at < FAILING_SEC

"""How long a request waits for NATS, so that a client learns soon of an outage and can try again.

A change has a fixed time. A read has that of its requests, which does not pass while the gateway is too busy to read
the replies.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from pyoco_server.app.ports import UnavailableError

T = TypeVar("T")
FAILING_SEC: Final = 10.0
"""For so long a failed write makes the gateway not ready, unless another one succeeds."""
LONGEST_SEC: Final = 2.3
"""The most time for a change, which takes several requests to NATS. A read is one request, with its own timeout."""

_cancelled: set[asyncio.Task[Any]] = set()


async def in_time(change: Coroutine[Any, Any, T]) -> T:
    """Return what the change returns or raises; UnavailableError if it takes too long.

    Then it is cancelled, and cleans up in the background.
    """
    task = asyncio.create_task(change)
    try:
        done, _ = await asyncio.wait({task}, timeout=LONGEST_SEC)
    except asyncio.CancelledError:
        _cancel(task)
        raise
    if not done:
        _cancel(task)
        raise UnavailableError(f"NATS did not answer within {LONGEST_SEC:g} s")
    return task.result()


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _cancelled.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _cancelled.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it; the client was answered with an outage


class Writes:
    """Remembers whether changes succeed: a NATS cluster without a majority answers, but stores nothing."""

    def __init__(self) -> None:
        self._failed_at: float | None = None

    async def noted(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change as :func:`in_time` does, and remember how it ended."""
        try:
            done = await in_time(change)
        except UnavailableError:
            self._failed_at = asyncio.get_running_loop().time()
            raise
        self._failed_at = None
        return done

    @property
    def are_failing(self) -> bool:
        """Whether a change failed in the last seconds, and none has succeeded since."""
        return self._failed_at is not None and asyncio.get_running_loop().time() - self._failed_at < FAILING_SEC

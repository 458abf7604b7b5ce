"""Who waits for which run's end, to be told as soon as its snapshot is written.

Sooner than the index and the event streams, which take changes in their order: this is told by the store's own
announcement, and again when the index knows.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from pyoco_server.gateway.errors import TooManyError


class RunEnds:
    """Who waits for which run."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._count = 0

    def tell(self, run_id: str) -> None:
        """The run's snapshot has changed: those who wait for the run look at it."""
        for changed in self._waiting.get(run_id, ()):
            changed.set()

    @contextlib.contextmanager
    def watched(self, run_id: str) -> Iterator[asyncio.Event]:
        """Set whenever there is something new; TooManyError if so many wait already."""
        if self._count >= self._most:
            raise TooManyError(f"{self._most} requests wait already; ask without wait_sec, or another gateway")
        changed = asyncio.Event()
        self._waiting.setdefault(run_id, set()).add(changed)
        self._count += 1
        try:
            yield changed
        finally:
            self._count -= 1
            self._waiting[run_id].discard(changed)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

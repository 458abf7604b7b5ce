"""Who waits for which run's end, to be told as soon as its snapshot is written.

Sooner than the index and the event streams, which take changes in their order: this is told by the store's own
announcement, and again when the index knows.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.errors import TooManyError


class News(asyncio.Event):
    """Set when there is something new of a run."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: bytes | None = None
        self._sequence = 0

    def tell(self, change: SnapshotChange | None) -> None:
        """There is; None if nobody knows what. What was told already is no news."""
        if change is not None:
            if change.sequence <= self._sequence:
                return
            self._sequence = change.sequence
        self._snapshot = None if change is None else change.body
        self.set()

    def take(self) -> bytes | None:
        """From now on wait for what comes next. The newest snapshot; None if one has to look."""
        self.clear()
        snapshot, self._snapshot = self._snapshot, None
        return snapshot


class RunEnds:
    """Who waits for which run."""

    def __init__(self, *, most: int, most_per_client: int) -> None:
        self.is_closed = False
        """Nobody is to wait any longer: the gateway stops."""
        self._most = most
        self._most_per_client = most_per_client
        self._waiting: defaultdict[str, set[News]] = defaultdict(set)
        self._clients: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many wait."""
        return self._clients.total()

    def tell(self, run_id: str, change: SnapshotChange | None = None) -> None:
        """The run's snapshot has changed: those who wait for the run look at it, unless they are told what it says."""
        for news in self._waiting.get(run_id, ()):
            news.tell(change)

    def close(self) -> None:
        """Let everybody have their answer now."""
        self.is_closed = True
        for run_id in self._waiting:
            self.tell(run_id)

    @contextlib.contextmanager
    def watched(self, run_id: str, client: str) -> Iterator[News]:
        """Set whenever there is something new; TooManyError if so many wait already."""
        if self.count >= self._most:
            raise TooManyError(f"{self._most} requests wait already; ask without wait_sec, or another gateway")
        if self._clients[client] >= self._most_per_client:
            raise TooManyError(f"{self._most_per_client} of your requests wait already; ask without wait_sec")
        news = News()
        self._waiting[run_id].add(news)
        self._clients[client] += 1
        try:
            yield news
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            self._waiting[run_id].discard(news)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

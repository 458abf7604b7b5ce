"""Those who watch runs: each is shown the newest snapshot when they are ready for it, and never more than that."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.errors import TooManyError


class Watcher:
    """One reader of one run: a slot for the newest snapshot, so a slow reader costs no more than a quick one."""

    __slots__ = ("_newest", "_something")

    def __init__(self) -> None:
        self._newest: bytes | None = None
        self._something = asyncio.Event()

    def put(self, body: bytes) -> None:
        """Have a newer snapshot ready."""
        self._newest = body
        self._something.set()

    async def next(self, timeout_sec: float) -> bytes | None:
        """The newest snapshot that was not shown yet; None if there was none in time."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._something.wait()
        except TimeoutError:
            return None
        self._something.clear()
        return self._newest


class WatchHub:
    """Who watches what."""

    def __init__(self, *, most: int, most_per_client: int) -> None:
        self._most = most
        self._most_per_client = most_per_client
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._clients: Counter[str] = Counter()
        self._count = 0

    @property
    def count(self) -> int:
        """How many watch."""
        return self._count

    def tell(self, change: SnapshotChange) -> None:
        """Let those who watch the run know."""
        if change.body is not None and change.run_id in self._watchers:
            for watcher in self._watchers[change.run_id]:
                watcher.put(change.body)

    def check(self, client: str) -> None:
        """TooManyError if one more would be too many."""
        if self._count >= self._most:
            raise TooManyError(f"{self._most} connections watch already; try again later, or ask another gateway")
        if self._clients[client] >= self._most_per_client:
            raise TooManyError(f"you watch {self._most_per_client} runs already; close a connection first")

    @contextmanager
    def watch(self, run_id: str, client: str) -> Iterator[Watcher]:
        """Watch a run; TooManyError if that would be one too many."""
        self.check(client)
        watcher = Watcher()
        self._watchers[run_id].add(watcher)
        self._clients[client] += 1
        self._count += 1
        try:
            yield watcher
        finally:
            self._count -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]

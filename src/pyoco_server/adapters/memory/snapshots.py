"""Snapshots in memory, and the feed of their changes."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Final

from pyoco_server.app.ports import (
    FeedState,
    ForeignSnapshotError,
    SnapshotChange,
    StoredSnapshot,
    TooLargeError,
    head_of,
    position_of,
)
from pyoco_server.app.ports.run_index import FEED_BYTES, Announced, size_of

MAX_BODY_BYTES: Final = 1_048_576
"""The largest message that a NATS server accepts by default."""

_origins: Final = itertools.count(1)


class MemorySnapshots:
    """The newest snapshot of each run; revisions count all writes."""

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._stored: dict[str, StoredSnapshot] = {}
        self._forbidden: set[str] = set()
        self._max_body_bytes = max_body_bytes
        self._last_revision = 0
        self._changes: dict[str, SnapshotChange] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._origin = f"memory {next(_origins)}"

    async def write(
        self,
        run_id: str,
        body: bytes,
        *,
        position: int,
        revision: int | None = None,
        is_urgent: bool = True,  # noqa: ARG002 nothing is slow here
    ) -> int | None:
        """Store a snapshot unless one of a newer position is stored."""
        if len(body) > self._max_body_bytes:
            raise TooLargeError(f"a snapshot of {len(body)} bytes is too large; at most {self._max_body_bytes} will do")
        if revision == 0 and run_id in self._forbidden:
            return None
        stored = self._stored.get(run_id)
        if stored is not None:
            if stored.position > position:
                return None
            if stored.revision != revision and head_of(stored.body).is_foreign:
                raise ForeignSnapshotError(stored)
        self._note_change(run_id, bytes(body))
        self._forbidden.discard(run_id)
        self._stored[run_id] = StoredSnapshot(run_id, bytes(body), position_of(body), self._last_revision)
        return self._last_revision

    async def sync(self) -> None:
        """Return at once: every write is complete."""

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """Return the newest snapshot."""
        return self._stored.get(run_id)

    async def forbid(self, run_id: str) -> bool:
        """Refuse first writes, unless there is a snapshot."""
        if run_id in self._stored:
            return False
        self._forbidden.add(run_id)
        return True

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot."""
        if self._stored.pop(run_id, None) is not None:
            self._note_change(run_id, None)

    def changes(self, *, after: int) -> list[SnapshotChange]:
        """Return the newest change of each run, if it is after ``after``; oldest first."""
        newest_first = itertools.takewhile(lambda change: change.sequence > after, reversed(self._changes.values()))
        return [*newest_first][::-1]

    def keys(self) -> set[str]:
        """Return the runs that have a snapshot, or a marker that one was removed."""
        return self._changes.keys() | self._forbidden

    @property
    def state(self) -> FeedState:
        """Which changes there are."""
        first = next((change.sequence for change in self._changes.values()), 1)
        return FeedState(self._origin, first, self._last_revision)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call a function for every change."""
        self._listeners.append(listener)

    def _note_change(self, run_id: str, body: bytes | None) -> None:
        self._last_revision += 1
        self._changes.pop(run_id, None)  # so that it comes last
        self._changes[run_id] = SnapshotChange(run_id, body, self._last_revision)
        for listener in self._listeners:
            listener(run_id)


class MemorySnapshotFeed:
    """The feed of changes of snapshots in memory."""

    def __init__(self, snapshots: MemorySnapshots) -> None:
        self._snapshots = snapshots
        self._changed = asyncio.Event()
        snapshots.listen(lambda _: self._changed.set())

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        """Return changes after ``after``, oldest first, and the position they were read up to."""
        if after > self._snapshots.state.last:
            after = 0
        changes, size = list[SnapshotChange](), 0
        for change in itertools.islice(self._snapshots.changes(after=after), limit):
            if size >= FEED_BYTES:
                break
            changes.append(change)
            size += size_of([change])
        return changes, changes[-1].sequence if changes else after

    async def state(self) -> FeedState:
        """Return which changes there are."""
        return self._snapshots.state

    async def wait(self, timeout_sec: float) -> None:
        """Return when a snapshot has changed, or after ``timeout_sec``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        self._changed.clear()

    def listen(self, on_change: Announced) -> None:
        """Call a function for every change."""
        self._snapshots.listen(lambda run_id: on_change(run_id, None))

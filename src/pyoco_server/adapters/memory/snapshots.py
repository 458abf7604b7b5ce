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
"""What a server takes by default."""

_origins: Final = itertools.count(1)


class MemorySnapshots:
    """The newest snapshot of each run; revisions count all writes."""

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._stored: dict[str, StoredSnapshot] = {}
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
        """Store a snapshot unless one of a newer position is there."""
        if len(body) > self._max_body_bytes:
            raise TooLargeError(f"a snapshot of {len(body)} bytes is too large; at most {self._max_body_bytes} will do")
        stored = self._stored.get(run_id)
        if stored is not None:
            if stored.position > position:
                return None
            if stored.revision != revision and head_of(stored.body).is_foreign:
                raise ForeignSnapshotError(stored)
        self._note_change(run_id, bytes(body))
        self._stored[run_id] = StoredSnapshot(run_id, bytes(body), position_of(body), self._last_revision)
        return self._last_revision

    async def sync(self) -> None:
        """Nothing is ever under way."""

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """The newest snapshot."""
        return self._stored.get(run_id)

    async def forbid(self, run_id: str) -> bool:
        """Nothing is ever on its way."""
        return run_id not in self._stored

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot."""
        if self._stored.pop(run_id, None) is not None:
            self._note_change(run_id, None)

    def changes(self, *, after: int) -> list[SnapshotChange]:
        """The newest change of each run, if it is behind ``after``; oldest first."""
        newest_first = itertools.takewhile(lambda change: change.sequence > after, reversed(self._changes.values()))
        return [*newest_first][::-1]

    @property
    def state(self) -> FeedState:
        """What there is to read of changes."""
        first = next((change.sequence for change in self._changes.values()), 1)
        return FeedState(self._origin, first, self._last_revision)

    def listen(self, told: Callable[[str], None]) -> None:
        """Be told of every change."""
        self._listeners.append(told)

    def _note_change(self, run_id: str, body: bytes | None) -> None:
        self._last_revision += 1
        self._changes.pop(run_id, None)  # so that it comes last
        self._changes[run_id] = SnapshotChange(run_id, body, self._last_revision)
        for told in self._listeners:
            told(run_id)


class MemorySnapshotFeed:
    """Changes of snapshots in memory."""

    def __init__(self, snapshots: MemorySnapshots) -> None:
        self._snapshots = snapshots
        self._changed = asyncio.Event()
        snapshots.listen(lambda _: self._changed.set())

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        """Changes behind ``after``, oldest first, and up to where they have been read."""
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
        """What there is to read."""
        return self._snapshots.state

    async def wait(self, timeout_sec: float) -> None:
        """Return when something changed, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        self._changed.clear()

    def listen(self, told: Announced) -> None:
        """Be told of every change."""
        self._snapshots.listen(lambda run_id: told(run_id, None))

"""Keeps the run index up to date with the snapshots, and notifies a listener of every change.

The feed is read from the position that the index has reached, so a restart, an outage or a lost announcement loses
nothing. When the bucket of snapshots is replaced, the index is rebuilt. An index that is far behind takes many changes
at a time, while the next ones are read.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from pyoco_server.app.ports import FeedState, RunIndex, SnapshotChange, SnapshotFeed, UnavailableError
from pyoco_server.app.ports.run_index import has_enough, size_of
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

POLL_SEC: Final = 1.0
"""The longest time until a change is read whose announcement was lost."""

_PAUSE_SEC: Final = 0.25
_PACE_SEC: Final = 0.01
_PACE_A_CHANGE_SEC: Final = 0.001
_SLOWEST_PACE_SEC: Final = 0.05
"""The least pause between two reads; it grows with the changes of the last read, above a thousand a second. The changes
of one pause are taken together, and of several changes of one run only the newest."""

_PAGE: Final = 500
_MOST_CHANGES: Final = 10 * _PAGE
_MOST_BYTES: Final = 16 * 1024 * 1024
"""So much is read before the index takes it; as much is read while it does."""

_CHECK_SEC: Final = 5.0


REACH_SEC: Final = 2.0
"""How long a reader of the index waits for a change that was written here."""


class _Batch(NamedTuple):
    """The changes of one read."""

    changes: list[SnapshotChange]
    position: int
    is_of_new_bucket: bool
    """These are the first changes of another bucket than the one read before."""
    is_last: bool
    """There was nothing more to read."""
    asked_at: float


class IndexUpdater:
    """Reads the feed into the index."""

    def __init__(
        self,
        feed: SnapshotFeed,
        index: RunIndex,
        on_change: Callable[[SnapshotChange], None],
        *,
        poll_sec: float = POLL_SEC,
    ) -> None:
        """``on_change`` is called with a change after the index has it; with some changes more than once.

        Older changes of one run may be missing. A run that vanished without a marker is not reported.
        """
        self._feed = feed
        self.index = index
        self._on_change = on_change
        self._poll_sec = poll_sec
        self._taken = 0
        """The number of changes in the last batch."""
        self._state: FeedState | None = None
        self._checked_at = -math.inf
        self._forgotten = 0
        self._current_at = -math.inf
        self._is_behind = True
        self._turn = asyncio.Lock()
        self._catching_up: asyncio.Task[None] | None = None
        self._reached = 0
        """The position up to which the index is known to be up to date."""
        self._written = 0
        """The newest change that was written here."""

    def note_written(self, sequence: int) -> None:
        """Take note of a change that was written here; :meth:`reach` waits for it."""
        self._written = max(self._written, sequence)

    async def reach(self) -> None:
        """Return when the index has every change that was noted before this call, so that readers find their writes.

        UnavailableError if that takes too long.
        """
        wanted = self._written
        try:
            async with asyncio.timeout(REACH_SEC):
                while self._reached < min(wanted, self._written):  # lower if the bucket was replaced meanwhile
                    await self._catch_up_together()
        except TimeoutError as error:
            raise UnavailableError(f"the list of runs is not up to date after {REACH_SEC:g} s; try again") from error

    async def _catch_up_together(self) -> None:
        """Catch up in a task that all readers share; a reader that leaves does not end it."""
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self.catch_up())
            self._catching_up.add_done_callback(self._caught_up)
        reached = self._reached
        await asyncio.shield(self._catching_up)
        if self._reached == reached:  # a replica that lags behind was read
            await asyncio.sleep(_PACE_SEC)

    def _caught_up(self, task: asyncio.Task[None]) -> None:
        self._catching_up = None
        if not task.cancelled():
            task.exception()  # raised to the readers that are still there

    @property
    def is_current(self) -> bool:
        """Did the last read find nothing left to read?"""
        return not self._is_behind

    @property
    def lag_sec(self) -> float:
        """Seconds since the index was last known to be up to date; infinite before that."""
        return asyncio.get_running_loop().time() - self._current_at

    async def run(self) -> None:
        """Keep the index up to date; until cancelled."""
        is_reported = False
        while True:
            try:
                await self.catch_up()
            except UnavailableError as error:
                self._is_behind, self._checked_at = True, -math.inf  # another bucket may come back
                if not is_reported:
                    log_error(
                        _log, "ERR-PYOCO-0003", action="run_index_behind", level=logging.WARNING, reason=str(error)
                    )
                is_reported = True
                await asyncio.sleep(_PAUSE_SEC)
                continue
            if is_reported:
                _log.info("the run index is up to date again", extra={"action": "run_index_current"})
                is_reported = False
            await asyncio.sleep(_pace_sec(self._taken))
            await self._feed.wait(self._poll_sec)

    async def catch_up(self) -> None:
        """Read until there is nothing new; UnavailableError if that cannot be done now."""
        async with self._turn:
            await self._catch_up()

    async def _catch_up(self) -> None:
        ahead: _Batch | None = None
        while True:
            now = asyncio.get_running_loop().time()
            if now - self._checked_at > _CHECK_SEC and await self._check(now):
                ahead = None
            if ahead is None:
                self._reached = await self.index.position()
            batch = ahead or await self._read(self._reached)
            if batch.is_of_new_bucket:
                await self._rebuild((await self._feed.state()).origin)
            ahead = await self._take(batch)
            if ahead is None:
                break
            self._is_behind = True
        await self._drop_vanished()
        self._current_at, self._is_behind = batch.asked_at, False

    async def _check(self, now: float) -> bool:
        """Rebuild the index if the bucket is not the one that it was made from; True if it was rebuilt."""
        state = await self._feed.state()
        is_other = await self.index.origin() != state.origin
        if is_other:
            await self._rebuild(state.origin)
        self._state, self._checked_at = state, now
        return is_other

    async def _read(self, after: int) -> _Batch:
        asked_at, position = asyncio.get_running_loop().time(), after
        changes, size = list[SnapshotChange](), 0
        while True:
            before = position
            page, position = await self._feed.read(after=before, limit=_PAGE)
            is_last = not has_enough(page, _PAGE)
            if position < before:  # what was read so far is of a bucket that is gone
                return _Batch([*page], position, is_of_new_bucket=True, is_last=is_last, asked_at=asked_at)
            changes += page
            size += size_of(page)
            if is_last or len(changes) >= _MOST_CHANGES or size >= _MOST_BYTES:
                return _Batch(changes, position, is_of_new_bucket=False, is_last=is_last, asked_at=asked_at)

    async def _take(self, batch: _Batch) -> _Batch | None:
        """Put a batch into the index and notify the listener; returns the batch read meanwhile, None at the end."""
        reading = None if batch.is_last else asyncio.ensure_future(self._read(batch.position))
        self._taken = len(batch.changes)
        try:
            if batch.changes:
                await self.index.apply(batch.changes, batch.position)
                self._reached = batch.position
            for number, change in enumerate(batch.changes, 1):
                self._on_change(change)
                if number % _PAGE == 0:
                    await asyncio.sleep(0)  # let other tasks run
            return None if reading is None else await reading
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _rebuild(self, origin: str) -> None:
        """Empty the index, which was made from another bucket."""
        if await self.index.position() > 0:
            _log.warning(
                "the bucket of snapshots was replaced; the run index is rebuilt from the new one",
                extra={"action": "run_index_rebuilt"},
            )
        await self.index.clear(origin)
        self._state, self._forgotten = None, 0
        self._reached = self._written = 0

    async def _drop_vanished(self) -> None:
        """Drop the runs that had no snapshot when the state of the feed was read.

        Once everything up to that state has been read, a run that the index has only from an older change has none.
        """
        if self._state is None or self._state.first <= self._forgotten:
            return
        if await self.index.position() >= self._state.last:
            await self.index.forget(self._state.first)
            self._forgotten = self._state.first


def _pace_sec(taken: int) -> float:
    return min(max(_PACE_SEC, taken * _PACE_A_CHANGE_SEC), _SLOWEST_PACE_SEC)

"""Keeps the read index up to date with the snapshots, and tells of every change.

The feed is read behind the position the index has reached, so nothing is lost by dying, by an outage, or by an
announcement that never came. Snapshots that were begun anew make the index begin anew. Who is far behind takes many
changes at a time, and reads the next ones meanwhile.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyoco_server.app.ports import FeedState, RunIndex, SnapshotChange, SnapshotFeed, UnavailableError
from pyoco_server.app.ports.run_index import has_enough, size_of
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

POLL_SEC: Final = 1.0
"""How long it may take at most until a change is seen of which nobody told."""

_PAUSE_SEC: Final = 0.25
_PACE_SEC: Final = 0.01
_PACE_A_CHANGE_SEC: Final = 0.001
_SLOWEST_PACE_SEC: Final = 0.05
"""Between two reads at least; the more changes the last had, the longer. What comes meanwhile is taken in one go, and
of several changes of one run only the newest. Only where more than a thousand come in a second it goes on to grow."""

_PAGE: Final = 500
_MOST_CHANGES: Final = 10 * _PAGE
_MOST_BYTES: Final = 16 * 1024 * 1024
"""No further page is read before that is taken into the index; the next as much is read meanwhile."""

_CHECK_SEC: Final = 5.0


REACH_SEC: Final = 2.0
"""How long a reader of the index waits for a change that was written here."""


class _Batch(NamedTuple):
    """What was read in one go."""

    changes: list[SnapshotChange]
    position: int
    begins_anew: bool
    """These are the first changes of other snapshots than those that were read before."""
    is_last: bool
    """There was nothing more to read."""
    asked_at: float


class IndexKeeper:
    """Reads the feed into the index."""

    def __init__(
        self,
        feed: SnapshotFeed,
        index: RunIndex,
        on_change: Callable[[SnapshotChange], None],
        *,
        poll_sec: float = POLL_SEC,
    ) -> None:
        """``on_change`` is told of each change when the index knows of it; of some more than once, and not of all.

        Of several changes of one run the older may be missing, and a run that vanished without a trace is not told of.
        """
        self._feed = feed
        self._index = index
        self._on_change = on_change
        self._poll_sec = poll_sec
        self._taken = 0
        """How many changes the last batch had."""
        self._state: FeedState | None = None
        self._checked_at = -math.inf
        self._forgotten = 0
        self._current_at = -math.inf
        self._is_behind = True
        self._hearing: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        self._is_listening = False
        self._turn = asyncio.Lock()
        self._catching_up: asyncio.Task[None] | None = None
        self._reached = 0
        """Up to where the index is known to be up to date."""
        self._written = 0
        """The newest change that was written here."""

    def note_written(self, sequence: int) -> None:
        """Take note of a change that was written here; :meth:`reach` waits for it."""
        self._written = max(self._written, sequence)

    async def reach(self) -> None:
        """Return when the index has every change that was noted before this call, so that readers find their writes.

        UnavailableError if that takes too long.
        """
        mark = self._written
        try:
            async with asyncio.timeout(REACH_SEC):
                while self._reached < min(mark, self._written):  # lower if the snapshots were begun anew meanwhile
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
        """Seconds since the index was last known to be up to date; infinite if it never was."""
        return asyncio.get_running_loop().time() - self._current_at

    @contextmanager
    def announcing(self, run_id: str, told: Callable[[], None]) -> Iterator[None]:
        """Have ``told`` called as soon as a change of the run is announced: before the index knows, and a hint only."""
        if not self._is_listening:
            self._feed.listen(self._announced)
            self._is_listening = True
        self._hearing[run_id].add(told)
        try:
            yield
        finally:
            self._hearing[run_id].discard(told)
            if not self._hearing[run_id]:
                del self._hearing[run_id]

    def _announced(self, run_id: str, _: SnapshotChange | None) -> None:
        for told in self._hearing.get(run_id, ()):
            told()

    async def run(self) -> None:
        """Keep the index up to date; until cancelled."""
        told = False
        while True:
            try:
                await self.catch_up()
            except UnavailableError as error:
                self._is_behind, self._checked_at = True, -math.inf  # whatever comes back may be something else
                if not told:
                    log_error(
                        _log, "ERR-PYOCO-0003", action="run_index_behind", level=logging.WARNING, reason=str(error)
                    )
                told = True
                await asyncio.sleep(_PAUSE_SEC)
                continue
            if told:
                _log.info("the run index is up to date again", extra={"action": "run_index_current"})
                told = False
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
                self._reached = await self._index.position()
            batch = ahead or await self._read(self._reached)
            if batch.begins_anew:
                await self._begin_anew((await self._feed.state()).origin)
            ahead = await self._take(batch)
            if ahead is None:
                break
            self._is_behind = True
        await self._drop_vanished()
        self._current_at, self._is_behind = batch.asked_at, False

    async def _check(self, now: float) -> bool:
        """Are these still the snapshots the index was made from? If not, it is begun anew."""
        state = await self._feed.state()
        is_other = await self._index.origin() != state.origin
        if is_other:
            await self._begin_anew(state.origin)
        self._state, self._checked_at = state, now
        return is_other

    async def _read(self, after: int) -> _Batch:
        asked_at, position = asyncio.get_running_loop().time(), after
        changes, size = list[SnapshotChange](), 0
        while True:
            before = position
            page, position = await self._feed.read(after=before, limit=_PAGE)
            is_last = not has_enough(page, _PAGE)
            if position < before:  # what was read so far is of snapshots that are no more
                return _Batch([*page], position, begins_anew=True, is_last=is_last, asked_at=asked_at)
            changes += page
            size += size_of(page)
            if is_last or len(changes) >= _MOST_CHANGES or size >= _MOST_BYTES:
                return _Batch(changes, position, begins_anew=False, is_last=is_last, asked_at=asked_at)

    async def _take(self, batch: _Batch) -> _Batch | None:
        """Put it into the index and tell of it; what was read meanwhile, or None if there was nothing more."""
        reading = None if batch.is_last else asyncio.ensure_future(self._read(batch.position))
        self._taken = len(batch.changes)
        try:
            if batch.changes:
                await self._index.apply(batch.changes, batch.position)
                self._reached = batch.position
            for number, change in enumerate(batch.changes, 1):
                self._on_change(change)
                if number % _PAGE == 0:
                    await asyncio.sleep(0)  # others want to go on, too
            return None if reading is None else await reading
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _begin_anew(self, origin: str) -> None:
        """Whatever is in the index, it is not about these snapshots."""
        if await self._index.position() > 0:
            _log.warning(
                "the snapshots were begun anew; the run index is made anew from them",
                extra={"action": "run_index_rebuilt"},
            )
        await self._index.clear(origin)
        self._state, self._forgotten = None, 0
        self._reached = self._written = 0

    async def _drop_vanished(self) -> None:
        """Drop the runs whose snapshots were gone when the state was asked for.

        When all that was there then has been read, a run the index knows by an older change only has none. Before, its
        newer one may be among what is still to be announced.
        """
        if self._state is None or self._state.first <= self._forgotten:
            return
        if await self._index.position() >= self._state.last:
            await self._index.forget(self._state.first)
            self._forgotten = self._state.first


def _pace_sec(taken: int) -> float:
    return min(max(_PACE_SEC, taken * _PACE_A_CHANGE_SEC), _SLOWEST_PACE_SEC)

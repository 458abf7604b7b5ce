"""Keeps the read index up to date with the snapshots, and tells of every change.

The feed is read behind the position the index has reached, so nothing is lost by dying, by an outage, or by an
announcement that never came. Snapshots that were begun anew make the index begin anew.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

from pyoco_server.app.ports import FeedState, RunIndex, SnapshotChange, SnapshotFeed, UnavailableError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

POLL_SEC: Final = 1.0
"""How long it may take at most until a change is seen of which nobody told."""

_PAUSE_SEC: Final = 0.25
_PACE_SEC: Final = 0.01
"""Between two reads at least, when there is no more than a few changes: what comes meanwhile is read in one go."""

_PAGE: Final = 500
_CHECK_SEC: Final = 5.0


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
        self._state: FeedState | None = None
        self._checked_at = -math.inf
        self._forgotten = 0
        self._current_at = -math.inf
        self._is_behind = True

    @property
    def is_current(self) -> bool:
        """Did the last read find nothing left to read?"""
        return not self._is_behind

    @property
    def lag_sec(self) -> float:
        """Seconds since the index was last known to be up to date; infinite if it never was."""
        return asyncio.get_running_loop().time() - self._current_at

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
            await asyncio.sleep(_PACE_SEC)
            await self._feed.wait(self._poll_sec)

    async def catch_up(self) -> None:
        """Read until there is nothing new; UnavailableError if that cannot be done now."""
        while True:
            began = asyncio.get_running_loop().time()
            if began - self._checked_at > _CHECK_SEC:
                await self._check(began)
            if await self._read_some():
                break
            self._is_behind = True
        await self._drop_vanished()
        self._current_at, self._is_behind = began, False

    async def _check(self, now: float) -> None:
        """Are these still the snapshots the index was made from?"""
        state = await self._feed.state()
        if await self._index.origin() != state.origin:
            await self._begin_anew(state.origin)
        self._state, self._checked_at = state, now

    async def _read_some(self) -> bool:
        """Take the next changes; was that all there is?"""
        reached = await self._index.position()
        changes, position = await self._feed.read(after=reached, limit=_PAGE)
        if position < reached:
            await self._begin_anew((await self._feed.state()).origin)
        if changes:
            await self._index.apply(changes, position)
            for change in changes:
                self._on_change(change)
        return len(changes) < _PAGE

    async def _begin_anew(self, origin: str) -> None:
        """Whatever is in the index, it is not about these snapshots."""
        if await self._index.position() > 0:
            _log.warning(
                "the snapshots were begun anew; the run index is made anew from them",
                extra={"action": "run_index_rebuilt"},
            )
        await self._index.clear(origin)
        self._state, self._forgotten = None, 0

    async def _drop_vanished(self) -> None:
        """Drop the runs whose snapshots were gone when the state was asked for.

        All that was there then has been read by now, so a run the index knows by an older change only has none.
        """
        if self._state is not None and self._state.first > self._forgotten:
            await self._index.forget(self._state.first)
            self._forgotten = self._state.first

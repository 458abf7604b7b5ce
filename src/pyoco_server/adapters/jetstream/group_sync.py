"""Many wait for one sync: what NATS has stored is on the disk when whoever wrote it is told so.

NATS would sync every message by itself. Left to those who write, messages that were stored while one sync was under way
share the next, however many they are, in one run or in a thousand. Whoever waits is told when a sync has ended that
began after they asked.
"""

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from pyoco_server.adapters.jetstream.store_files import DiskFailedError, StreamFiles
from pyoco_server.app.ports import UnavailableError

_log = logging.getLogger(__name__)

T = TypeVar("T")
_Waiting = list[tuple[asyncio.Future[Any], Any]]
"""Futures, and what each is settled with when all is well."""

Done = Callable[[UnavailableError | None], None]
"""Called on the event loop when a sync has ended; with an error if nobody knows what is on the disk."""


class Syncer(Protocol):
    """Who syncs one stream."""

    def begin(self, done: Done) -> None:
        """Begin a sync; the last one has ended. This one may have when this returns."""
        ...

    def close(self) -> None:
        """No other will be asked for. One that is under way may end without anybody being told."""
        ...


class StreamGroup:
    """Those who wait for a stream to be synced, on one event loop."""

    def __init__(self, syncer: Syncer) -> None:
        self.syncer = syncer
        self._loop = asyncio.get_running_loop()
        self._next: _Waiting = []
        self._under_way: _Waiting | None = None
        self._is_wanted = False

    async def wait(self) -> None:
        """Return when all that was stored when this was called is on the disk; UnavailableError if nobody knows."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self.join(ended, None)
        await ended

    def join(self, ended: asyncio.Future[T], result: T) -> None:
        """Have a future settled then, with ``result``."""
        if not self._is_wanted:
            self._is_wanted = True
            if self._under_way is None:
                # At the end of this round of the loop: what is being read now may hold more that can join.
                self._loop.call_soon(self._start)
        self._next.append((ended, result))

    def _start(self) -> None:
        self._is_wanted = False
        self._under_way, self._next = self._next, []
        self.syncer.begin(self._ended)

    def _ended(self, error: UnavailableError | None) -> None:
        group, self._under_way = self._under_way or [], None
        if self._is_wanted:
            self._start()
        _tell(group, error)

    def close(self) -> None:
        """Nobody is told any more that anything is on the disk."""
        self.syncer.close()
        groups, self._next, self._under_way = [*self._next, *(self._under_way or ())], [], None
        _tell(groups, UnavailableError("nobody waited for the disk: the connection was closed"))


def _tell(group: _Waiting, error: UnavailableError | None) -> None:
    """Let those who wait know."""
    for ended, result in group:
        if ended.done():  # whoever waited was cancelled
            continue
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(UnavailableError(str(error)))


QUICK_SEC: Final = 0.001
"""A disk that usually takes no longer than this is waited for on the event loop."""

_UNKNOWN_SEC: Final = 0.008
"""What a disk of which nothing is known is taken to need: it has to show that it is quick, some 40 times."""

_REMEMBERED: Final = 16
"""How many syncs count, about; one that takes very long counts as if nothing was known."""

_SLOW_SEC: Final = 0.005
_PAUSE_SEC: Final = 0.25
"""A disk that took so long, or has just failed to show that it is quick, is not tried on the loop for so long."""


class FileSyncer:
    """Syncs the files of a stream: on the event loop while that is quick, else in a thread of its own.

    To hand a sync over to a thread and back takes about as long as a quick disk, for everybody: on the loop it is over
    sooner, costs less, and what comes in meanwhile shares the next. For a slow disk nobody else waits, but for the
    moment in which it is found to be slow.

    How long the disk takes can be seen on the loop only: a thread is told late, and the later the more there is to do.

    What a failed sync has lost nobody can tell, and the next one would not mention it: after a failure none succeeds.
    """

    def __init__(self, files: StreamFiles, *, name: str) -> None:
        self._files = files
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[Done | None] = queue.SimpleQueue()
        self._failure: UnavailableError | None = None
        self._usual_sec = _UNKNOWN_SEC
        self._try_at = math.inf
        self._is_closed = False
        threading.Thread(target=self._work, name=f"sync of {name}", daemon=True).start()

    @property
    def is_quick(self) -> bool:
        """Has the disk shown that it can be waited for on the event loop?"""
        return self._usual_sec < QUICK_SEC

    def begin(self, done: Done) -> None:
        """Begin a sync; it may have ended when this returns."""
        if self._is_closed:
            return
        if self.is_quick or time.perf_counter() >= self._try_at:
            done(self._tried(self._note_on_loop))
        else:
            self._wanted.put(done)

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._wanted.put(None)

    def _work(self) -> None:
        while (done := self._wanted.get()) is not None:
            error = self._tried(self._note_in_thread)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(done, error)
        self._files.close()

    def _tried(self, note: Callable[[float], None]) -> UnavailableError | None:
        """Sync, and take note of how long that took."""
        began = time.perf_counter()
        try:
            return self._failure or self._synced()
        except Exception as unexpected:  # noqa: BLE001 told; who waits must be told in any case
            _log.exception("a sync of %s crashed", self._name, extra={"action": "sync_crashed"})
            return UnavailableError(f"the stream {self._name} cannot be synced: {unexpected!r:.200}")
        finally:
            note(time.perf_counter() - began)

    def _note_on_loop(self, took_sec: float) -> None:
        self._usual_sec += (min(took_sec, _REMEMBERED * _UNKNOWN_SEC) - self._usual_sec) / _REMEMBERED
        if took_sec >= QUICK_SEC:
            self._try_at = time.perf_counter() + _PAUSE_SEC

    def _note_in_thread(self, took_sec: float) -> None:
        if took_sec >= _SLOW_SEC:
            self._try_at = time.perf_counter() + _PAUSE_SEC
        elif self._try_at == math.inf:  # the first, which has more to do than others
            self._try_at = time.perf_counter()

    def _synced(self) -> UnavailableError | None:
        try:
            self._files.sync()
        except OSError as error:  # as when the stream is removed
            return UnavailableError(f"the stream {self._name} cannot be synced: {error}")
        except DiskFailedError as error:
            self._failure = UnavailableError(f"the disk failed to take what was stored in {self._name}: {error}")
            _log.critical("%s", self._failure, extra={"action": "sync_failed", "resource": self._name})
            return self._failure
        return None

"""Group commit: many writers share one fsync of the files in which NATS keeps a stream.

NATS would sync every message separately. Here, all messages that were stored while one sync ran share the next one, in
one run or in a thousand. A writer continues when a sync has ended that began after its message was stored.
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

from pyoco_server.adapters.jetstream.durability.stream_files import DiskFailedError, StreamFiles
from pyoco_server.app.ports import UnavailableError

_log = logging.getLogger(__name__)

T = TypeVar("T")
_Waiting = list[tuple[asyncio.Future[Any], Any]]
"""Futures, and the result that each gets after a successful sync."""

Done = Callable[[UnavailableError | None], None]
"""Called on the event loop when a sync has ended; with an error if it is unknown what is on the disk."""


class StreamSyncer(Protocol):
    """Syncs one stream."""

    def begin(self, done: Done) -> None:
        """Begin a sync, which may have ended when this returns. The one before has ended."""
        ...

    def close(self) -> None:
        """No further sync will begin. One that is running may end without its callback."""
        ...


class GroupCommit:
    """The writers of one event loop that wait for a stream to be synced."""

    def __init__(self, syncer: StreamSyncer) -> None:
        self.syncer = syncer
        self._loop = asyncio.get_running_loop()
        self._next: _Waiting = []
        self._under_way: _Waiting | None = None
        self._is_wanted = False

    async def wait(self) -> None:
        """Return when everything stored before this call is on the disk; UnavailableError if that is unknown."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self.settle_after_sync(ended, None)
        await ended

    def settle_after_sync(self, ended: asyncio.Future[T], result: T) -> None:
        """Settle a future with ``result`` after a sync that has not begun yet."""
        if not self._is_wanted:
            self._is_wanted = True
            if self._under_way is None:
                # At the end of this turn of the loop: what is being read now may contain further acknowledgements.
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
        _settle(group, error)

    def close(self) -> None:
        """Fail all waiting writers: whether their messages are on the disk is unknown."""
        self.syncer.close()
        groups, self._next, self._under_way = [*self._next, *(self._under_way or ())], [], None
        _settle(groups, UnavailableError("it is unknown whether it is on the disk: the connection was closed"))


def _settle(group: _Waiting, error: UnavailableError | None) -> None:
    for ended, result in group:
        if ended.done():  # the writer was cancelled
            continue
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(UnavailableError(str(error)))


QUICK_SEC: Final = 0.001
"""A disk that usually takes no longer than this is synced on the event loop."""

_UNKNOWN_SEC: Final = 0.008
"""The assumed time of an unknown disk: about 40 quick syncs prove that it is quick."""

_REMEMBERED: Final = 16
"""About how many syncs the average covers; one that takes very long resets it to the assumption."""

_SLOW_SEC: Final = 0.005
_PAUSE_SEC: Final = 0.25
"""After a sync of ``_SLOW_SEC``, or one that was not quick on the loop, none is tried on the loop for this long."""


class FileSyncer:
    """Syncs the files of a stream: on the event loop while that is quick, else in a thread of its own.

    Handing a sync to a thread and back takes about as long as a quick disk. On the loop it ends sooner and costs less,
    and messages that arrive meanwhile share the next one. With a slow disk, the loop waits only for the sync that shows
    it.

    The time of the disk can be measured on the loop only: a thread is scheduled late, the more so the busier it is.

    What a failed sync has lost is unknown, and the next one would not report it: after a failure, all syncs fail.
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
        """Whether the disk has proved that it can be synced on the event loop."""
        return self._usual_sec < QUICK_SEC

    def begin(self, done: Done) -> None:
        """Begin a sync, which may have ended when this returns."""
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
            with contextlib.suppress(RuntimeError):  # the loop is closed, and no writer waits
                self._loop.call_soon_threadsafe(done, error)
        self._files.close()

    def _tried(self, note: Callable[[float], None]) -> UnavailableError | None:
        """Sync, and pass the time that took to ``note``."""
        began = time.perf_counter()
        try:
            return self._failure or self._synced()
        except Exception as unexpected:  # noqa: BLE001 the writers must get an error in any case
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
        elif self._try_at == math.inf:  # the first sync, which also syncs directories
            self._try_at = time.perf_counter()

    def _synced(self) -> UnavailableError | None:
        try:
            self._files.sync()
        except OSError as error:  # for example, the stream was deleted
            return UnavailableError(f"the stream {self._name} cannot be synced: {error}")
        except DiskFailedError as error:
            self._failure = UnavailableError(f"the disk failed to store messages of {self._name}: {error}")
            _log.critical("%s", self._failure, extra={"action": "sync_failed", "resource": self._name})
            return self._failure
        return None

"""Many wait for one sync: what NATS has stored is on the disk when whoever wrote it is told so.

NATS would sync every message by itself. Left to those who write, messages that were stored while one sync was under way
share the next, however many they are, in one run or in a thousand. Whoever waits is told when a sync has ended that
began after they asked.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

from pyoco_server.adapters.jetstream.store_files import DiskFailedError, StreamFiles
from pyoco_server.app.ports import UnavailableError

_log = logging.getLogger(__name__)

Done = Callable[[UnavailableError | None], None]
"""Called on the event loop when a sync has ended; with an error if nobody knows what is on the disk."""


class Syncer(Protocol):
    """Who syncs one stream."""

    def begin(self, done: Done) -> None:
        """Begin a sync; the last one has ended."""
        ...

    def close(self) -> None:
        """No other will be asked for. One that is under way may end without anybody being told."""
        ...


class StreamGroup:
    """Those who wait for a stream to be synced, on one event loop."""

    def __init__(self, syncer: Syncer) -> None:
        self.syncer = syncer
        self._loop = asyncio.get_running_loop()
        self._next: list[asyncio.Future[None]] = []
        self._under_way: list[asyncio.Future[None]] | None = None
        self._is_wanted = False

    async def wait(self) -> None:
        """Return when all that was stored when this was called is on the disk; UnavailableError if nobody knows."""
        if not self._is_wanted:
            self._is_wanted = True
            if self._under_way is None:
                # At the end of this round of the loop: what is being read now may hold more that can join.
                self._loop.call_soon(self._start)
        ended = self._loop.create_future()
        self._next.append(ended)
        await ended

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


def _tell(group: list[asyncio.Future[None]], error: UnavailableError | None) -> None:
    """Let those who wait know."""
    for ended in group:
        if ended.done():  # whoever waited was cancelled
            continue
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(UnavailableError(str(error)))


class FileSyncer:
    """Syncs the files of a stream, in a thread of its own: nobody else waits for this disk.

    What a failed sync has lost nobody can tell, and the next one would not mention it: after a failure none succeeds.
    """

    def __init__(self, files: StreamFiles, *, name: str) -> None:
        self._files = files
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[Done | None] = queue.SimpleQueue()
        self._failure: UnavailableError | None = None
        threading.Thread(target=self._work, name=f"sync of {name}", daemon=True).start()

    def begin(self, done: Done) -> None:
        """Begin a sync."""
        self._wanted.put(done)

    def close(self) -> None:
        """End the thread."""
        self._wanted.put(None)

    def _work(self) -> None:
        while (done := self._wanted.get()) is not None:
            try:
                error = self._failure or self._synced()
            except Exception as unexpected:  # noqa: BLE001 told; who waits must be told in any case
                _log.exception("a sync of %s crashed", self._name, extra={"action": "sync_crashed"})
                error = UnavailableError(f"the stream {self._name} cannot be synced: {unexpected!r:.200}")
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(done, error)
        self._files.close()

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

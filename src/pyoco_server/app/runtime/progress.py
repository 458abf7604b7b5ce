"""Carries progress reports from a task to the log.

A task may report as often as it likes, from any thread. Of one node, a report is written at once if none was for a
while, else when that while is over; of those that come in meanwhile only the newest is kept. So a busy loop floods
neither the log nor the event loop, reports never overtake each other, and the last before the end is always written.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from pyoco_server.texts import shortened

PAUSE_SEC: Final = 0.1
"""How long after one report of a node the next is written, by the event loop's time."""

Report = tuple[float | None, str | None]
Write = Callable[[str, float | None, str | None], Awaitable[None]]


class ProgressReporter:
    """Takes reports and writes them, newest wins."""

    def __init__(self) -> None:
        self._lines: dict[str, _AttemptReports] = {}

    def reporter(self, node_id: str, write: Write) -> Callable[[float | None, str | None], None]:
        """Return what one attempt calls, from any thread; reports after ``drained`` are discarded."""
        line = _AttemptReports(node_id, write, asyncio.get_running_loop())
        earlier = self._lines.get(node_id)
        if earlier is not None:
            earlier.close()
        self._lines[node_id] = line
        return line.report

    async def drained(self, node_id: str) -> None:
        """Wait until what was reported is written; the attempt that reported it is over."""
        line = self._lines.pop(node_id, None)
        if line is not None and not line.is_quiet:
            await line.drained()
        elif line is not None:
            line.close()


class _AttemptReports:
    """The reports of one attempt. ``report`` may be called from any thread, the rest belongs to the event loop."""

    __slots__ = (
        "_closed",
        "_is_scheduled",
        "_lock",
        "_loop",
        "_newest",
        "_node_id",
        "_not_before",
        "_timer",
        "_write",
        "_writer",
    )

    def __init__(self, node_id: str, write: Write, loop: asyncio.AbstractEventLoop) -> None:
        self._node_id = node_id
        self._write = write
        self._loop = loop
        self._lock = threading.Lock()  # guards the next three
        self._newest: Report | None = None
        self._is_scheduled = False  # the loop will write
        self._closed = False
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_quiet(self) -> bool:
        return not self._is_scheduled

    def report(self, percent: float | None, message: str | None) -> None:
        text = None if message is None else shortened(message)
        if type(percent) not in {int, float, type(None)}:  # a subclass, whose methods are code of users
            percent = float(percent or 0)
        with self._lock:
            if self._closed:  # an abandoned attempt still reports
                return
            self._newest = (percent, text)
            if self._is_scheduled:
                return
            self._is_scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop was closed during a call that still runs
            self._loop.call_soon_threadsafe(self._write_when_due)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._newest = None
        if self._timer is not None:
            self._timer.cancel()

    async def drained(self) -> None:
        if self._writer is not None:
            await self._writer
        with self._lock:
            self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._write_newest()

    def _write_when_due(self) -> None:
        wait_sec = self._not_before - self._loop.time()
        if wait_sec > 0:
            self._timer = self._loop.call_later(wait_sec, self._begin_to_write)
        else:
            self._begin_to_write()

    def _begin_to_write(self) -> None:
        if not self._closed:
            self._writer = self._loop.create_task(self._write_now(), name=f"progress of {self._node_id}")

    async def _write_now(self) -> None:
        try:
            await self._write_newest()
        finally:
            self._writer = None
            self._not_before = self._loop.time() + PAUSE_SEC
            with self._lock:
                self._is_scheduled = self._newest is not None and not self._closed
                is_more = self._is_scheduled
            if is_more:
                self._write_when_due()

    async def _write_newest(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None:
            await self._write(self._node_id, *newest)

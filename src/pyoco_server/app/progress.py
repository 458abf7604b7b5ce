"""Progress reports on their way from a task to the log.

A task may report as often as it likes, from any thread. Per node one report is being written at a time; while it is,
only the newest of those that come in is kept, so a busy loop cannot flood the log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pyoco_server.app.outputs import writable

Report = tuple[float | None, str | None]
Write = Callable[[str, float | None, str | None], Awaitable[None]]


class ProgressDesk:
    """Takes reports and writes them, newest wins."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._newest: dict[str, Report] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}

    def reporter(self, node_id: str) -> Callable[[float | None, str | None], None]:
        """What a task calls; may be called from any thread. A percentage outside 0 to 100 is an error at once."""
        loop = asyncio.get_running_loop()

        def report(percent: Any, message: Any) -> None:  # noqa: ANN401 users pass what they like; it is checked here
            if not isinstance(percent, int | float | None) or not isinstance(message, str | None):
                raise TypeError("progress takes a number and a text")
            if percent is not None and not 0 <= percent <= 100:
                raise ValueError(f"progress must be between 0 and 100, not {percent}")
            loop.call_soon_threadsafe(self._take, node_id, (percent, None if message is None else writable(message)))

        return report

    async def drained(self, node_id: str) -> None:
        """Wait until what was reported is written."""
        await asyncio.sleep(0)  # a report made by the task's last line may still be on its way to this loop
        writer = self._writers.get(node_id)
        if writer is not None:
            await writer

    def _take(self, node_id: str, report: Report) -> None:
        self._newest[node_id] = report
        if node_id not in self._writers:
            self._writers[node_id] = asyncio.create_task(self._write_all(node_id), name=f"progress of {node_id}")

    async def _write_all(self, node_id: str) -> None:
        try:
            while node_id in self._newest:
                await self._write(node_id, *self._newest.pop(node_id))
        finally:
            del self._writers[node_id]

"""One read for all requests that want the same value at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReads(Generic[T]):
    """Shares reads, but never one that began before the caller asked: during a read, callers share the next one.

    A thousand callers at once cost a few reads, not a thousand that delay each other until they time out.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._next: dict[Hashable, asyncio.Task[T]] = {}

    async def read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return what ``read`` returns or raises; it begins after every caller that shares it has asked."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._read(key, read))
            task.add_done_callback(_retrieve_error)
        return await asyncio.shield(task)  # a caller that is cancelled does not cancel the others

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        before = self._under_way.get(key)
        if before is not None:
            await asyncio.wait([before])
        mine = self._under_way[key] = self._next.pop(key)
        try:
            return await read()
        finally:
            if self._under_way.get(key) is mine:
                del self._under_way[key]


def _retrieve_error(task: asyncio.Task[T]) -> None:
    """Keep asyncio from logging an error that the callers have received, or that no caller waits for any longer."""
    if not task.cancelled():
        task.exception()

"""Reading once for all who want to know the same thing at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReads(Generic[T]):
    """Shares reads, and never an old one: whoever comes while one is under way shares the next.

    A thousand readers who come at once cost a few reads, not a thousand that keep each other waiting until they seem to
    have failed.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._next: dict[Hashable, asyncio.Task[T]] = {}

    async def read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """What ``read`` returns or raises, begun by whoever asked first and not before anybody who shares it asked."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._read(key, read))
            task.add_done_callback(_seen)
        return await asyncio.shield(task)  # one who leaves takes nothing away from the others

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


def _seen(task: asyncio.Task[T]) -> None:
    """Those who shared the read were told how it ended; there may be none left of them."""
    if not task.cancelled():
        task.exception()

"""Telling an outage from a gateway too busy to notice that it was answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Self, TypeVar

from pyoco_server.app.ports import UnavailableError

T = TypeVar("T")
TICK_SEC: Final = 0.05
TRIES: Final = 5


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """What ``read`` returns or raises; it is asked again if no answer came while the event loop hardly ever turned.

    Time runs out for a request even while nobody gets round to looking for the answer. Then it says nothing about NATS.
    """
    for _ in range(TRIES - 1):
        with Turns() as turns:
            try:
                return await read()
            except UnavailableError:
                if not turns.were_few:
                    raise
    return await read()


class Turns:
    """Counts how often the event loop comes round, inside ``with``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = 0

    def __enter__(self) -> Self:
        self._began = self._loop.time()
        self._next = self._loop.call_later(TICK_SEC, self._turn)
        return self

    def __exit__(self, *_error: object) -> None:
        self._next.cancel()

    def _turn(self) -> None:
        self._count += 1
        self._next = self._loop.call_later(TICK_SEC, self._turn)

    @property
    def were_few(self) -> bool:
        """Was it less than half as often as there was time for?"""
        return 2 * (self._count + 1) * TICK_SEC < self._loop.time() - self._began

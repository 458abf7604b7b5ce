"""A bounded number of slots, given out in the order they were asked for."""

import asyncio
from collections import deque

from pyoco_server.adapters.isolation.errors import SlotsClosedError


class FairSlots:
    """``limit`` slots for the tasks of one event loop.

    A slot given back goes straight to whoever waited longest, so nobody who comes later can slip in between.
    ``asyncio.Semaphore`` is as fair, but cannot turn away those who wait when it is closed.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self.limit = limit
        self._in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def in_use(self) -> int:
        """How many slots are taken."""
        return self._in_use

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether slots are no longer given out."""
        return self._closed

    async def acquire(self) -> None:
        """Wait for a slot; it must be given back with ``release``. Raises ``SlotsClosedError``."""
        self._refuse_if_closed()
        if self.take():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiting.remove(waiter)
            elif waiter.exception() is None:  # handed over in the very moment of the cancel: pass it on
                self.release()
            raise
        if self._closed:
            self.release()
            self._refuse_if_closed()

    def take(self) -> bool:
        """A slot at once, or False; as fair as ``acquire``, for one is free only while nobody waits."""
        if self._closed or self._in_use >= self.limit:
            return False
        self._in_use += 1
        self._drained.clear()
        return True

    def release(self) -> None:
        """Give a slot back."""
        for waiter in self._waiting:
            if not waiter.done():  # a cancelled one takes itself out when it gets to run
                self._waiting.remove(waiter)
                waiter.set_result(None)
                return
        self._in_use -= 1
        if self._in_use == 0:
            self._drained.set()

    def close(self) -> None:
        """Refuse whoever waits and whoever comes; those who have a slot keep it."""
        self._closed = True
        for waiter in list(self._waiting):
            if not waiter.done():
                self._waiting.remove(waiter)
                waiter.set_exception(SlotsClosedError("The slots were closed before the call could start."))

    async def drained(self, timeout_sec: float | None = None) -> bool:
        """Wait until no slot is taken; False if that took longer than ``timeout_sec``."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SlotsClosedError("The slots are closed; no call can start any more.")

"""A bounded number of slots, given out in the order of the requests."""

import asyncio
from collections import deque

from pyoco_server.adapters.executor.errors import SlotsClosedError


class FairSlots:
    """``limit`` slots for the tasks of one event loop.

    A released slot goes directly to the task that has waited longest, so a later task cannot overtake it.
    ``asyncio.Semaphore`` is as fair, but cannot be closed, which refuses the tasks that wait.
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
        """How many slots are in use."""
        return self._in_use

    @property
    def waiting(self) -> int:
        """How many tasks wait for a slot."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether slots are no longer given out."""
        return self._closed

    async def acquire(self) -> None:
        """Wait for a slot, which the caller must ``release``. Raises ``SlotsClosedError``."""
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
            elif waiter.exception() is None:  # the slot came together with the cancel: pass it on
                self.release()
            raise
        if self._closed:
            self.release()
            self._refuse_if_closed()

    def take(self) -> bool:
        """Take a slot if one is free, or return False; as fair as ``acquire``: no slot is free while a task waits."""
        if self._closed or self._in_use >= self.limit:
            return False
        self._in_use += 1
        self._drained.clear()
        return True

    def release(self) -> None:
        """Give the slot to the next task that waits, or free it."""
        for waiter in self._waiting:
            if not waiter.done():  # a cancelled task removes itself when it runs
                self._waiting.remove(waiter)
                waiter.set_result(None)
                return
        self._in_use -= 1
        if self._in_use == 0:
            self._drained.set()

    def close(self) -> None:
        """Refuse the tasks that wait and all later ones; tasks that have a slot keep it."""
        self._closed = True
        for waiter in list(self._waiting):
            if not waiter.done():
                self._waiting.remove(waiter)
                waiter.set_exception(SlotsClosedError("The slots were closed before the call could start."))

    async def drained(self, timeout_sec: float | None = None) -> bool:
        """Wait until no slot is in use; False if that takes longer than ``timeout_sec``."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SlotsClosedError("The slots are closed; no call can start any more.")

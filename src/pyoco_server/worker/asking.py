"""How many slots of a worker ask for a job at a time.

A request costs the server and the worker the same whether anything comes of it, and has to be made anew every second or
so. A worker may have thousands of slots; if each that is free had a request out, asking would be all they do. A few are
enough: whoever got a job leaves their turn to the next.
"""

import asyncio
from typing import Self


class Asking:
    """Gives out turns, no more than ``most`` at a time."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    def turn(self) -> "Turn":
        """To be entered before one asks; over when one says so, or at its end."""
        return Turn(self._free)


class Turn:
    """One slot's turn. Use once."""

    __slots__ = ("_free", "_is_over")

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._is_over = True

    async def __aenter__(self) -> Self:
        await self._free.acquire()
        self._is_over = False
        return self

    def over(self) -> None:
        """Let somebody else ask."""
        if not self._is_over:
            self._is_over = True
            self._free.release()

    async def __aexit__(self, *_error: object) -> None:
        self.over()

"""The clock of this machine, and ids: random UUIDs (version 4), made cheaply, since every event has one."""

import asyncio
import itertools
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final


class SystemClock:
    """The real time."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 this is the clock

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)


_SOURCE: Final = random.Random()  # noqa: S311 not secrets
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_forks = 0


def _forked() -> None:
    """Reseed in a forked child, which must not make its parent's ids."""
    global _forks  # noqa: PLW0603 there is one process
    _SOURCE.seed()
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def uuid_maker(source: random.Random | None = None) -> Callable[[], str]:
    """Return a function that makes a new id at each call; ``source`` makes them predictable, for tests."""
    bits = (source or _SOURCE).getrandbits

    def new_id() -> str:
        digits = bits(128).to_bytes(16, "big").hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"

    return new_id


def series_maker() -> Callable[[], str]:
    """Return a function that makes ids for a third of the cost, for events: one random prefix and a counter.

    The prefix of 74 random bits distinguishes them from the ids of other processes.
    """
    new_id = uuid_maker()
    prefix, numbers, prefix_of_fork = "", itertools.count(), -1

    def next_id() -> str:
        nonlocal prefix, numbers, prefix_of_fork
        if prefix_of_fork != _forks:
            prefix, numbers = new_id()[:-12], itertools.count(_SOURCE.getrandbits(46))
            prefix_of_fork = _forks
        return f"{prefix}{next(numbers):012x}"

    next_id()  # so that no two threads begin it
    return next_id

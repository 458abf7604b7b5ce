"""Ids: random UUIDs (version 4), made cheaply, since every event has one.

They must be unique, not secret: a generator seeded by the system is as good as the system's, at a tenth of the cost.
"""

import itertools
import os
import random
from collections.abc import Callable
from typing import Final

_SOURCE: Final = random.Random()  # noqa: S311 not secrets
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_forks = 0


def _forked() -> None:
    """A forked child must not make its parent's ids."""
    global _forks  # noqa: PLW0603 there is one process
    _SOURCE.seed()
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def uuid_maker(source: random.Random | None = None) -> Callable[[], str]:
    """A function that makes a new id at each call; ``source`` makes them predictable, for tests."""
    bits = (source or _SOURCE).getrandbits

    def new_id() -> str:
        digits = bits(128).to_bytes(16, "big").hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"

    return new_id


def series_maker() -> Callable[[], str]:
    """The same for what is many and hardly ever looked at, as events are: of one beginning, for a third of the cost.

    What tells them from those of all others is their beginning, of 74 random bits; among themselves they are counted.
    """
    new_id = uuid_maker()
    beginning, numbers, begun_after = "", itertools.count(), -1

    def next_id() -> str:
        nonlocal beginning, numbers, begun_after
        if begun_after != _forks:
            beginning, numbers = new_id()[:-12], itertools.count(_SOURCE.getrandbits(46))
            begun_after = _forks
        return f"{beginning}{next(numbers):012x}"

    next_id()  # so that threads find it begun
    return next_id

"""Ids: random UUIDs (version 4), made cheaply, since every event has one."""

import random
from collections.abc import Callable


def uuid_maker(source: random.Random | None = None) -> Callable[[], str]:
    """A function that makes a new id at each call; ``source`` makes them predictable, for tests."""
    bits = (source or random.SystemRandom()).getrandbits

    def new_id() -> str:
        digits = f"{bits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    return new_id

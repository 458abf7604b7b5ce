"""Numbers the whole platform counts by, as a tenant sees them: each stands for one thing, none tells how many.

A stream's sequence numbers grow with what everybody does: two of them tell how busy the others were in between. So a
tenant is shown another number in its place, from which only those who know the pepper find the way back.
"""

import hashlib
import hmac
from typing import Final

_HALF_BITS: Final = 26
_HALF: Final = (1 << _HALF_BITS) - 1
_ROUNDS: Final = 8
MOST: Final = 1 << 2 * _HALF_BITS
"""Numbers below this can be hidden, and stay below it: every reader of JSON takes them as they are."""


class Veil:
    """A permutation of the numbers below MOST, one for each tenant: a Feistel network, whose rounds run back too."""

    def __init__(self, pepper: bytes, tenant_id: str) -> None:
        self._key = hmac.digest(pepper, b"pyoco-server veil " + tenant_id.encode(), hashlib.sha256)

    def hide(self, number: int) -> int:
        """The number a tenant is shown."""
        left, right = number >> _HALF_BITS, number & _HALF
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._mixed(turn, right)
        return left << _HALF_BITS | right

    def uncover(self, shown: int) -> int | None:
        """The number behind what a tenant was shown; None if none is."""
        if not 0 <= shown < MOST:
            return None
        left, right = shown >> _HALF_BITS, shown & _HALF
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._mixed(turn, left), left
        return left << _HALF_BITS | right

    def _mixed(self, turn: int, half: int) -> int:
        digest = hmac.digest(self._key, bytes([turn]) + half.to_bytes(4), hashlib.sha256)
        return int.from_bytes(digest[:4]) & _HALF

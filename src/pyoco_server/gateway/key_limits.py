"""Limits of one API key on one gateway: requests per second, and requests at a time."""

import math
from collections import Counter
from collections.abc import Callable

from pyoco_server.gateway.errors import TooManyError


class LimitReachedError(TooManyError):
    """A key is over its limit; it may send a request again after ``retry_after_sec``."""

    def __init__(self, text: str, retry_after_sec: float) -> None:
        super().__init__(text)
        self.retry_after_sec = max(1, math.ceil(retry_after_sec))


class _Allowance:
    """How many requests a key may send now; at most those of one second accumulate."""

    __slots__ = ("left", "since")

    def __init__(self, left: float, since: float) -> None:
        self.left = left
        self.since = since


class KeyLimits:
    """Counts requests by key; it has at most one entry for each key."""

    def __init__(self, *, per_sec: float = 0.0, at_once: int = 0) -> None:
        """0 means no limit."""
        self._per_sec = per_sec
        self._at_once = at_once
        self._allowances: dict[str, _Allowance] = {}
        self._under_way: Counter[str] = Counter()

    def admit(self, api_key_id: str, now: float) -> Callable[[], None]:
        """Begin a request; LimitReachedError if it is one too many. Call the returned function when it has ended."""
        if self._at_once and self._under_way[api_key_id] >= self._at_once:
            raise LimitReachedError(f"{self._at_once} requests of this key are under way; wait for one of them", 1.0)
        self._deduct(api_key_id, now)
        self._under_way[api_key_id] += 1
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._under_way[api_key_id] -= 1
                if not self._under_way[api_key_id]:
                    del self._under_way[api_key_id]

        return end

    def under_way(self, api_key_id: str) -> int:
        """Return how many requests of a key are in progress."""
        return self._under_way[api_key_id]

    def _deduct(self, api_key_id: str, now: float) -> None:
        if not self._per_sec:
            return
        most = max(1.0, self._per_sec)
        allowance = self._allowances.setdefault(api_key_id, _Allowance(most, now))
        allowance.left = min(most, allowance.left + (now - allowance.since) * self._per_sec)
        allowance.since = now
        if allowance.left < 1.0:
            wait = (1.0 - allowance.left) / self._per_sec
            raise LimitReachedError(f"more than {self._per_sec:g} requests a second came with this key", wait)
        allowance.left -= 1.0

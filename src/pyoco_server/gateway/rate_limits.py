"""How much one API key may ask of one gateway: so many requests a second, and so many at a time."""

import math
from collections import Counter
from collections.abc import Callable

from pyoco_server.gateway.errors import TooManyError


class LimitReachedError(TooManyError):
    """A key asks for too much; ``retry_after_sec`` tells when it may ask again."""

    def __init__(self, text: str, retry_after_sec: float) -> None:
        super().__init__(text)
        self.retry_after_sec = max(1, math.ceil(retry_after_sec))


class _Allowance:
    """What is left to a key; a second's worth can be saved up."""

    __slots__ = ("left", "since")

    def __init__(self, left: float, since: float) -> None:
        self.left = left
        self.since = since


class KeyLimits:
    """Counts requests by key. There are no more entries than there are keys."""

    def __init__(self, *, per_sec: float = 0.0, at_once: int = 0) -> None:
        """0 is no limit."""
        self._per_sec = per_sec
        self._at_once = at_once
        self._allowances: dict[str, _Allowance] = {}
        self._under_way: Counter[str] = Counter()

    def admit(self, api_key_id: str, now: float) -> Callable[[], None]:
        """Begin a request; LimitReachedError if that is one too many. Call what is returned when it has ended."""
        if self._at_once and self._under_way[api_key_id] >= self._at_once:
            raise LimitReachedError(f"{self._at_once} requests of this key are under way; wait for one of them", 1.0)
        self._spend(api_key_id, now)
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
        """How many requests of a key are being worked on."""
        return self._under_way[api_key_id]

    def _spend(self, api_key_id: str, now: float) -> None:
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

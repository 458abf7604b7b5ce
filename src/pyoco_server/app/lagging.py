"""Who is behind: runs whose log has moved on while their snapshot has not. Kept as it happens: nothing is scanned."""

from collections import OrderedDict
from typing import NamedTuple


class Lag(NamedTuple):
    """A run whose snapshot should have come by now."""

    run_id: str
    position: int


class Lagging:
    """Hears of appends and of snapshots, and knows which of the two is missing."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def appended(self, run_id: str, position: int, now: float) -> None:
        """The log of a run ends at ``position`` now."""
        known = self._waiting.get(run_id)
        self._waiting[run_id] = (position, known[1] if known is not None else now)

    def written(self, run_id: str, position: int) -> None:
        """A snapshot of this position is there."""
        known = self._waiting.get(run_id)
        if known is not None and known[0] <= position:
            del self._waiting[run_id]

    def overdue(self, before: float, limit: int = 200) -> list[Lag]:
        """Runs that have waited since ``before``; each is told once."""
        found: list[Lag] = []
        for run_id, (position, since) in self._waiting.items():
            if since > before or len(found) == limit:
                break
            found.append(Lag(run_id, position))
        for lag in found:
            del self._waiting[lag.run_id]
        return found

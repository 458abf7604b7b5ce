"""Runs whose log has grown while their snapshot has not. Appends and writes are noted, so nothing is scanned."""

from collections import OrderedDict
from typing import NamedTuple


class LaggingRun(NamedTuple):
    """A run whose snapshot is overdue."""

    run_id: str
    position: int


class SnapshotLag:
    """Notes appends and snapshots, and lists the runs whose snapshot is missing."""

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

    @property
    def is_empty(self) -> bool:
        """Whether every run that was noted has its snapshot."""
        return not self._waiting

    def overdue(self, before: float, limit: int = 200) -> list[LaggingRun]:
        """Return runs that have lacked their snapshot since ``before``, and forget them."""
        found: list[LaggingRun] = []
        for run_id, (position, since) in self._waiting.items():
            if since > before or len(found) == limit:
                break
            found.append(LaggingRun(run_id, position))
        for lag in found:
            del self._waiting[lag.run_id]
        return found

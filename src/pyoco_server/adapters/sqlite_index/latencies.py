"""Histograms of how long runs took, counted as runs end, so that reading them does not read the runs."""

import bisect
import sqlite3
from collections import Counter, defaultdict
from typing import Final

from pyoco_server.adapters.sqlite_index.queries import number_of
from pyoco_server.adapters.sqlite_index.schema import NOTHING
from pyoco_server.app.ports import LATENCY_BOUNDS_SEC, Histogram, Latencies

QUEUED: Final = 0
WHOLE: Final = 1

_COUNT: Final = """INSERT INTO latencies VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET runs = runs + excluded.runs, seconds = seconds + excluded.seconds"""
_READ: Final = "SELECT class, runs, seconds FROM latencies WHERE tenant = ? AND kind = ?"


class Measured:
    """The measurements of one transaction, summed before they are written."""

    def __init__(self) -> None:
        self._runs: Counter[tuple[int, int, int]] = Counter()
        self._seconds: defaultdict[tuple[int, int, int], float] = defaultdict(float)

    def count(self, tenant: int, kind: int, seconds: float) -> None:
        """Count one run that took this long."""
        place = (tenant, kind, bisect.bisect_left(LATENCY_BOUNDS_SEC, seconds))
        self._runs[place] += 1
        self._seconds[place] += seconds

    def write(self, connection: sqlite3.Connection) -> None:
        """Add the sums to the stored histograms of each tenant, and of all together."""
        connection.executemany(
            _COUNT,
            [
                (counted, kind, place, runs, self._seconds[tenant, kind, place])
                for (tenant, kind, place), runs in self._runs.items()
                for counted in {tenant, NOTHING}
            ],
        )

    def clear(self) -> None:
        """Drop the measurements."""
        self._runs.clear()
        self._seconds.clear()


def latencies(connection: sqlite3.Connection, tenant_id: str | None) -> Latencies:
    """Return the histograms of a tenant, or of all together."""
    tenant = NOTHING if tenant_id is None else number_of(connection, tenant_id)
    return Latencies(_histogram(connection, tenant, QUEUED), _histogram(connection, tenant, WHOLE))


def _histogram(connection: sqlite3.Connection, tenant: int | None, kind: int) -> Histogram:
    runs, seconds = [0] * (len(LATENCY_BOUNDS_SEC) + 1), 0.0
    for place, counted, lasted in connection.execute(_READ, (tenant, kind)):
        runs[place] = counted
        seconds += lasted
    return Histogram(runs, seconds)

"""Write changes to the index: rows, counts and position change in one transaction, and so always agree.

When an index with few runs gets very many (a *load*), the indexes that only readers need are dropped, and made at the
end, or for the first query. After a crash in between, the next process continues the load: to restart each time might
never finish.
"""

import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyoco_server.adapters.sqlite_index.latencies import QUEUED, WHOLE, Measured
from pyoco_server.adapters.sqlite_index.queries import day_of
from pyoco_server.adapters.sqlite_index.row_mapping import Row, row_of
from pyoco_server.adapters.sqlite_index.schema import NOTHING, drop_indexes, lacks_indexes, make_indexes, span_of
from pyoco_server.app.ports import SnapshotChange
from pyoco_server.app.snapshots.status import TERMINAL_RUN

_log = logging.getLogger(__name__)

MANY: Final = 2_000
"""A change with this many runs begins a load if the index has fewer."""

_MOST_CACHED_TERMS: Final = 50_000
_AT_A_TIME: Final = 500
_COUNT_DAY: Final = """INSERT INTO days VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET runs = runs + excluded.runs, bytes = bytes + excluded.bytes"""
_COUNT: Final = """INSERT INTO cells VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET runs = runs + excluded.runs"""


_WAIT: Final = "INSERT INTO waits VALUES (?, ?, ?)"


class _Columns(NamedTuple):
    """A row of the table of runs, without the key, the id and the summary."""

    sequence: int
    submitted_at: float
    updated_at: float
    span: int
    tenant: int
    flow: int
    status: int
    tag: int
    yaml: int | None
    held: int | None
    redrive_of: str | None
    alive_at: float | None
    size: int

    @property
    def cell(self) -> "_Cell":
        """The cell of the run."""
        return self.tenant, self.flow, self.status, self.tag


_Cell = tuple[int, int, int, int]
_CELL: Final = "tenant, flow, status, tag"
_NAMES: Final = ", ".join(_Columns._fields)
_FIND: Final = f"SELECT run_id, key, {_NAMES} FROM runs INDEXED BY runs_by_id WHERE run_id IN "  # noqa: S608 our own names
_INSERT: Final = f"INSERT INTO runs (run_id, summary, {_NAMES}) VALUES (?, ?{', ?' * len(_Columns._fields)})"  # noqa: S608 our own names


class Writer:
    """Writes to the index. Only one thread at a time may use it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._terms: dict[str, int] = {}
        self._counted: Counter[_Cell] = Counter()
        self._days: Counter[tuple[int, int]] = Counter()
        self._bytes: Counter[tuple[int, int]] = Counter()
        self._measured = Measured()
        self._added: list[tuple[object, ...]] = []
        self.is_loading = lacks_indexes(connection)
        """Whether indexes that readers need are missing."""

    def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        """Apply the changes that are newer than the index; see the port."""
        newest: dict[str, SnapshotChange] = {}
        for change in changes:
            if change.run_id not in newest or newest[change.run_id].sequence < change.sequence:
                newest[change.run_id] = change
        rows = [(change, row_of(change)) for change in newest.values()]
        if len(rows) < MANY:
            self.finish()
        elif not self.is_loading and self._has_few():
            self._begin_load()
        with self._transaction() as execute:
            [reached] = execute("SELECT position FROM feed").fetchone()
            known = self._known(list(newest))
            for change, row in rows:
                if change.sequence > reached:
                    self._take(change, row, known.get(change.run_id))
            execute("UPDATE feed SET position = max(position, ?)", (position,))

    def finish(self) -> None:
        """Make the indexes that readers need, if they are missing."""
        if self.is_loading:
            with self._transaction():
                make_indexes(self._connection)
            self.is_loading = False

    def _begin_load(self) -> None:
        with self._transaction():
            drop_indexes(self._connection)
            self.is_loading = True

    def forget(self, before: int) -> None:
        """Remove the runs whose newest change is older."""
        self.finish()
        with self._transaction() as execute:
            sql = f"SELECT key, submitted_at, size, {_CELL} FROM runs WHERE sequence < ?"  # noqa: S608 our own names
            for key, submitted_at, size, *cell in execute(sql, (before,)).fetchall():
                self._remove(key, submitted_at, size, tuple(cell))

    def clear(self, origin: str) -> None:
        """Remove everything."""
        with self._transaction() as execute:
            for table in ("runs", "waits", "cells", "days", "latencies", "terms"):
                execute(f"DELETE FROM {table}")  # noqa: S608 our own names
            execute("UPDATE feed SET origin = ?, position = 0, compared = ''", (origin,))
            self._terms.clear()

    def note_compared(self, state: str) -> None:
        """Store the state of the stores in which nothing derived from the log is missing."""
        with self._transaction() as execute:
            execute("UPDATE feed SET compared = ?", (state,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        self._counted.clear()
        self._days.clear()
        self._bytes.clear()
        self._measured.clear()
        self._added.clear()
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield execute
            self._connection.executemany(_INSERT, self._added)
            self._connection.executemany(_COUNT, _summed(self._counted))
            days = [(*place, runs, self._bytes[place]) for place, runs in self._days.items()]
            self._connection.executemany(_COUNT_DAY, [day for day in days if any(day[2:])])
            self._measured.write(self._connection)
            execute("COMMIT")
        except BaseException:
            self._terms.clear()
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _has_few(self) -> bool:
        """Return whether the index has fewer runs than a load brings at once, so that a rebuild costs little more."""
        [runs] = self._connection.execute("SELECT count(*) FROM (SELECT 1 FROM runs LIMIT ?)", (MANY,)).fetchone()
        return bool(runs < MANY)

    def _known(self, run_ids: Sequence[str]) -> dict[str, tuple[int, _Columns]]:
        """Return key and columns of these runs, as far as the index has them."""
        known: dict[str, tuple[int, _Columns]] = {}
        for begin in range(0, len(run_ids), _AT_A_TIME):
            part = run_ids[begin : begin + _AT_A_TIME]
            places = ", ".join("?" * len(part))
            for run_id, key, *columns in self._connection.execute(f"{_FIND}({places})", part):
                known[run_id] = key, _Columns(*columns)
        return known

    def _take(self, change: SnapshotChange, row: Row | None, found: tuple[int, _Columns] | None) -> None:
        key, known = (None, None) if found is None else found
        if known is not None and known.sequence >= change.sequence:
            return
        if row is None:
            if change.body is not None:
                _log_unreadable(change)
            if key is not None and known is not None:
                self._remove(key, known.submitted_at, known.size, known.cell)
            return
        columns = self._columns(change, row, known)
        if key is None or known is None:
            self._insert(change.run_id, row, columns)
        else:
            self._update(key, row, columns, known)
            self._note_deadlines(key, row.deadlines)
        if row.status in TERMINAL_RUN and not self._had_ended(known):
            self._note_latencies(row, columns.tenant)

    def _columns(self, change: SnapshotChange, row: Row, known: _Columns | None) -> _Columns:
        placed_at = row.started_at if known is None else known.submitted_at
        submitted_at = placed_at if row.submitted_at is None else row.submitted_at
        return _Columns(
            sequence=change.sequence,
            submitted_at=submitted_at,
            updated_at=row.updated_at,
            span=span_of(row.updated_at - submitted_at),
            tenant=self._number(row.tenant),
            flow=self._number(row.flow),
            status=self._number(row.status),
            tag=self._number(row.tag),
            yaml=self._number(row.yaml) or None,  # most runs have none, and are in no index of workflows
            held=1 if row.is_held else None,
            redrive_of=row.redrive_of,
            alive_at=row.alive_at,
            size=row.size,
        )

    def _insert(self, run_id: str, row: Row, columns: _Columns) -> None:
        self._counted[columns.cell] += 1
        self._count_day(columns.tenant, columns.submitted_at, 1, columns.size)
        written = (run_id, row.summary, *columns)
        if not row.deadlines:
            self._added.append(written)  # inserted with the others at the end
            return
        key = self._connection.execute(_INSERT, written).lastrowid
        rows = [(key, node_id, deadline) for node_id, deadline in row.deadlines.items()]
        self._connection.executemany(_WAIT, rows)

    def _update(self, key: int, row: Row, columns: _Columns, known: _Columns) -> None:
        """Update the columns that differ: SQLite writes to an index only if one of its columns is set."""
        self._counted[known.cell] -= 1
        self._counted[columns.cell] += 1
        self._count_day(known.tenant, known.submitted_at, -1, -known.size)
        self._count_day(columns.tenant, columns.submitted_at, 1, columns.size)
        changed = {name: new for name, new, old in zip(_Columns._fields, columns, known, strict=True) if new != old}
        sets = "".join(f", {name} = ?" for name in changed)
        self._connection.execute(
            f"UPDATE runs SET summary = ?{sets} WHERE key = ?",  # noqa: S608 our own names
            (row.summary, *changed.values(), key),
        )

    def _remove(self, key: int, submitted_at: float, size: int, cell: _Cell) -> None:
        self._counted[cell] -= 1
        self._count_day(cell[0], submitted_at, -1, -size)
        self._connection.execute("DELETE FROM runs WHERE key = ?", (key,))
        self._connection.execute("DELETE FROM waits WHERE run = ?", (key,))

    def _count_day(self, tenant: int, submitted_at: float, runs: int, size: int) -> None:
        """Count a run and its bytes for its tenant, and for all together."""
        for counted in {tenant, NOTHING}:
            self._days[counted, day_of(submitted_at)] += runs
            self._bytes[counted, day_of(submitted_at)] += size

    def _note_deadlines(self, key: int, deadlines: Mapping[str, float]) -> None:
        execute = self._connection.execute
        noted = dict(execute("SELECT node_id, deadline FROM waits WHERE run = ?", (key,)).fetchall())
        if noted != deadlines:
            execute("DELETE FROM waits WHERE run = ?", (key,))
            rows = [(key, node_id, deadline) for node_id, deadline in deadlines.items()]
            self._connection.executemany(_WAIT, rows)

    def _had_ended(self, known: _Columns | None) -> bool:
        return known is not None and known.status in {self._number(status) for status in TERMINAL_RUN}

    def _note_latencies(self, row: Row, tenant: int) -> None:
        for kind, seconds in ((QUEUED, row.queued_sec), (WHOLE, row.whole_sec)):
            if seconds is not None:
                self._measured.count(tenant, kind, seconds)

    def _number(self, text: str | None) -> int:
        """Return the number of a text, which gets one if it has none."""
        if text is None:
            return NOTHING
        number = self._terms.get(text)
        if number is None:
            if len(self._terms) >= _MOST_CACHED_TERMS:
                self._terms.clear()
            execute = self._connection.execute
            found = execute("SELECT id FROM terms WHERE text = ?", (text,)).fetchone()
            number = found[0] if found else execute("INSERT INTO terms (text) VALUES (?)", (text,)).lastrowid
            assert number is not None  # noqa: S101 a row was inserted
            self._terms[text] = number
        return number


def _summed(counted: Mapping[_Cell, int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Sum the counts by tenant and flow, and by any of either."""
    sums: Counter[_Cell] = Counter()
    for (tenant, flow, status, tag), runs in counted.items():
        for place in {(tenant, flow), (tenant, NOTHING), (NOTHING, flow), (NOTHING, NOTHING)}:
            sums[*place, status, tag] += runs
    return ((*cell, runs) for cell, runs in sums.items() if runs)


def _log_unreadable(change: SnapshotChange) -> None:
    _log.warning(
        "the snapshot of '%s' is not a JSON object with a status; lists do not show this run",
        change.run_id,
        extra={"action": "snapshot_unreadable", "run_id": change.run_id},
    )

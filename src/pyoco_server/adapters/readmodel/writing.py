"""Changes of the index: rows, counts and the position change in one transaction, and so never contradict each other."""

import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyoco_server.adapters.readmodel.latencies import QUEUED, WHOLE, Measured
from pyoco_server.adapters.readmodel.rows import Row, row_of
from pyoco_server.adapters.readmodel.schema import NOTHING, span_of
from pyoco_server.app.ports import SnapshotChange
from pyoco_server.app.statuses import TERMINAL_RUN

_log = logging.getLogger(__name__)

_MOST_TERMS_AT_HAND: Final = 50_000
_COUNT: Final = """INSERT INTO cells VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET runs = runs + excluded.runs"""


class _Columns(NamedTuple):
    """A row of the table of runs, but for the key, the id and the summary."""

    sequence: int
    submitted_at: float
    updated_at: float
    span: int
    tenant: int
    flow: int
    status: int
    tag: int
    yaml: int | None
    alive_at: float | None

    @property
    def cell(self) -> "_Cell":
        """Where the run is listed."""
        return self.tenant, self.flow, self.status, self.tag


_Cell = tuple[int, int, int, int]
_CELL: Final = "tenant, flow, status, tag"
_NAMES: Final = ", ".join(_Columns._fields)
_FIND: Final = f"SELECT key, {_NAMES} FROM runs WHERE run_id = ?"  # noqa: S608 our own names
_INSERT: Final = f"INSERT INTO runs (run_id, summary, {_NAMES}) VALUES (?, ?{', ?' * len(_Columns._fields)})"  # noqa: S608 our own names


class Writer:
    """Writes to the index. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._terms: dict[str, int] = {}
        self._counted: Counter[_Cell] = Counter()
        self._measured = Measured()

    def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        """Take what is new in the changes; see the port."""
        newest: dict[str, SnapshotChange] = {}
        for change in changes:
            if change.run_id not in newest or newest[change.run_id].sequence < change.sequence:
                newest[change.run_id] = change
        rows = [(change, row_of(change)) for change in newest.values()]
        with self._transaction() as execute:
            [reached] = execute("SELECT position FROM feed").fetchone()
            for change, row in rows:
                if change.sequence > reached:
                    self._take(change, row)
            execute("UPDATE feed SET position = max(position, ?)", (position,))

    def forget(self, before: int) -> None:
        """Remove the runs whose newest change is older."""
        with self._transaction() as execute:
            gone = execute(f"SELECT key, {_CELL} FROM runs WHERE sequence < ?", (before,)).fetchall()  # noqa: S608 our own names
            for key, *cell in gone:
                self._remove(key, tuple(cell))

    def clear(self, origin: str) -> None:
        """Remove everything."""
        with self._transaction() as execute:
            for table in ("runs", "waits", "cells", "latencies", "terms"):
                execute(f"DELETE FROM {table}")  # noqa: S608 our own names
            execute("UPDATE feed SET origin = ?, position = 0", (origin,))
            self._terms.clear()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        self._counted.clear()
        self._measured.clear()
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield execute
            self._connection.executemany(_COUNT, [(*cell, runs) for cell, runs in self._counted.items() if runs])
            self._measured.write(self._connection)
            execute("COMMIT")
        except BaseException:
            self._terms.clear()
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _take(self, change: SnapshotChange, row: Row | None) -> None:
        found = self._connection.execute(_FIND, (change.run_id,)).fetchone()
        key, known = (None, None) if found is None else (int(found[0]), _Columns(*found[1:]))
        if known is not None and known.sequence >= change.sequence:
            return
        if row is None:
            if change.body is not None:
                _tell_unreadable(change)
            if key is not None and known is not None:
                self._remove(key, known.cell)
            return
        columns = self._columns(change, row, known)
        if key is None or known is None:
            key = self._insert(change.run_id, row, columns)
        else:
            self._update(key, row, columns, known)
        self._note_deadlines(key, row.deadlines, is_new=known is None)
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
            alive_at=row.alive_at,
        )

    def _insert(self, run_id: str, row: Row, columns: _Columns) -> int:
        self._count(columns.cell, 1)
        key = self._connection.execute(_INSERT, (run_id, row.summary, *columns)).lastrowid
        assert key is not None  # noqa: S101 a row was inserted
        return key

    def _update(self, key: int, row: Row, columns: _Columns, known: _Columns) -> None:
        """Only what differs is set: an index is not touched unless one of its columns is set."""
        self._count(known.cell, -1)
        self._count(columns.cell, 1)
        changed = {name: new for name, new, old in zip(_Columns._fields, columns, known, strict=True) if new != old}
        sets = "".join(f", {name} = ?" for name in changed)
        self._connection.execute(
            f"UPDATE runs SET summary = ?{sets} WHERE key = ?",  # noqa: S608 our own names
            (row.summary, *changed.values(), key),
        )

    def _remove(self, key: int, cell: _Cell) -> None:
        self._count(cell, -1)
        self._connection.execute("DELETE FROM runs WHERE key = ?", (key,))
        self._connection.execute("DELETE FROM waits WHERE run = ?", (key,))

    def _note_deadlines(self, key: int, deadlines: Mapping[str, float], *, is_new: bool) -> None:
        execute = self._connection.execute
        if not is_new:
            noted = dict(execute("SELECT node_id, deadline FROM waits WHERE run = ?", (key,)).fetchall())
            if noted == deadlines:
                return
            execute("DELETE FROM waits WHERE run = ?", (key,))
        rows = [(key, node_id, deadline) for node_id, deadline in deadlines.items()]
        self._connection.executemany("INSERT INTO waits VALUES (?, ?, ?)", rows)

    def _had_ended(self, known: _Columns | None) -> bool:
        return known is not None and known.status in {self._number(status) for status in TERMINAL_RUN}

    def _note_latencies(self, row: Row, tenant: int) -> None:
        for kind, seconds in ((QUEUED, row.queued_sec), (WHOLE, row.whole_sec)):
            if seconds is not None:
                for counted in {tenant, NOTHING}:
                    self._measured.count(counted, kind, seconds)

    def _count(self, cell: _Cell, runs: int) -> None:
        tenant, flow, status, tag = cell
        for counted in {(tenant, flow), (tenant, NOTHING), (NOTHING, flow), (NOTHING, NOTHING)}:
            self._counted[*counted, status, tag] += runs

    def _number(self, text: str | None) -> int:
        """The number of a text, given now if it has none."""
        if text is None:
            return NOTHING
        number = self._terms.get(text)
        if number is None:
            if len(self._terms) >= _MOST_TERMS_AT_HAND:
                self._terms.clear()
            execute = self._connection.execute
            found = execute("SELECT id FROM terms WHERE text = ?", (text,)).fetchone()
            number = found[0] if found else execute("INSERT INTO terms (text) VALUES (?)", (text,)).lastrowid
            assert number is not None  # noqa: S101 a row was inserted
            self._terms[text] = number
        return number


def _tell_unreadable(change: SnapshotChange) -> None:
    _log.warning(
        "the snapshot of '%s' is none: it is no JSON object with a status; it is left out of lists",
        change.run_id,
        extra={"action": "snapshot_unreadable", "run_id": change.run_id},
    )

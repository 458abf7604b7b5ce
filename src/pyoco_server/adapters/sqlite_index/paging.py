"""Pages of runs, merged from the cells that match; ``schema`` defines cells.

Two filters are not part of the order of any index:

- ``updated_after`` T. A run that was submitted after T was updated after T, so a page is first filled with those,
  without this filter. The rest are runs that were in progress at T. They are found by how long they took: those that
  took less than D seconds were submitted after T - D. There is one class of runs for each doubling of D, so that few
  other runs are read.
- ``run_id_prefix``. If few ids begin with it, those runs are read. If many do, every part of the list has some of them.

``submitted_after`` is a place in the list: the list ends there, or begins there if the oldest come first. SQLite
searches by one lower and one upper bound only, so every other bound on the time of submission is merged into these.
"""

import heapq
import itertools
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyoco_server.adapters.sqlite_index.queries import SUMMARY, number_of
from pyoco_server.adapters.sqlite_index.schema import NOTHING
from pyoco_server.app.ports import Cursor, IndexedRun, RunQuery

FEW: Final = 5_000
"""At most this many runs are read by the prefix of their ids alone."""

_END_OF_TIME: Final = 1e300
_BEHIND_ALL: Final = "\U0010ffff"
_SHORTEST_READ: Final = 4
_SPARSE: Final = ("held", "yaml")
"""Columns that are empty for most runs, each with an index of its own.

If a query has both, the first is used: few runs are held at any time."""
_CELLS: Final = "SELECT status, tag FROM cells WHERE tenant = :tenant AND flow = :flow AND runs > 0"
_COUNT_PREFIX: Final = """SELECT count(*) FROM
    (SELECT 1 FROM runs AS r INDEXED BY runs_by_id WHERE r.run_id >= :prefix AND r.run_id < :prefix_end LIMIT :few)"""


class _FoundRun(NamedTuple):
    """A run on a page. These compare in the order of the list, because ids are unique."""

    submitted_at: float
    run_id: str
    key: int


class _Wanted(NamedTuple):
    """The conditions of a query, without the place in the list."""

    terms: Mapping[str, int]
    """By column."""
    conditions: list[str]
    parameters: dict[str, Any]
    limit: int
    oldest_first: bool


def page(connection: sqlite3.Connection, query: RunQuery) -> list[IndexedRun]:
    """Return the newest runs that match."""
    connection.execute("BEGIN")  # all queries of a page see the same state
    try:
        wanted = _wanted(connection, query)
        if wanted is None:
            return []
        return [_indexed(connection, found) for found in _search(connection, query, wanted)]
    finally:
        connection.execute("COMMIT")


def prefix_range(prefix: str) -> dict[str, str]:
    """Return the bounds of the ids that begin with this."""
    return {"prefix": prefix, "prefix_end": prefix + _BEHIND_ALL}


def _wanted(connection: sqlite3.Connection, query: RunQuery) -> _Wanted | None:
    """Return the conditions; None if no run can match."""
    texts = {
        "tenant": query.tenant_id,
        "flow": query.flow,
        "status": query.status,
        "tag": query.tag,
        "yaml": query.workflow_yaml_sha256,
    }
    terms: dict[str, int] = {}
    for name, text in texts.items():
        if text is not None:
            number = number_of(connection, text)
            if number is None:
                return None
            terms[name] = number
    if query.held:
        terms["held"] = 1
    if query.limit <= 0:
        return None
    at, run_id = _place(query)
    parameters: dict[str, Any] = {**terms, "at": at, "run_id": run_id}
    conditions: list[str] = []
    if query.run_id_prefix:
        conditions.append("r.run_id >= :prefix AND r.run_id < :prefix_end")
        parameters |= prefix_range(query.run_id_prefix)
    if query.updated_after is not None:
        conditions.append("r.updated_at > :updated_after")
        parameters |= {"updated_after": query.updated_after}
    if query.submitted_after is not None:
        conditions.append("+r.submitted_at > :submitted_after")  # "+": the index is searched by another bound
        parameters |= {"submitted_after": query.submitted_after}
    return _Wanted(terms, conditions, parameters, query.limit, query.oldest_first)


def _place(query: RunQuery) -> Cursor:
    """Return the run after which the page begins."""
    if not query.oldest_first:
        return query.before or Cursor(_END_OF_TIME, "")
    begin = -_END_OF_TIME if query.submitted_after is None else math.nextafter(query.submitted_after, math.inf)
    return max(query.before or Cursor(begin, ""), Cursor(begin, ""))


def _search(connection: sqlite3.Connection, query: RunQuery, wanted: _Wanted) -> list[_FoundRun]:
    if query.run_id_prefix and _is_rare(connection, wanted):
        return _gather(connection, wanted, "runs AS r INDEXED BY runs_by_id", wanted.conditions, wanted.limit)
    moments = [moment for moment in (query.submitted_after, query.updated_after) if moment is not None]
    if not moments or query.oldest_first:
        return [*itertools.islice(_listed(connection, wanted, wanted.conditions), wanted.limit)]
    wanted.parameters["since"] = max(moments)
    since = [*wanted.conditions, "r.submitted_at > :since"]
    found = [*itertools.islice(_listed(connection, wanted, since), wanted.limit)]
    if query.updated_after == max(moments) and len(found) < wanted.limit:
        found += _under_way(connection, wanted, wanted.limit - len(found))
    return found


def _listed(connection: sqlite3.Connection, wanted: _Wanted, conditions: list[str]) -> Iterator[_FoundRun]:
    """Iterate over the list from the place on, merged from its cells; each cell is read in growing steps."""
    terms = wanted.terms
    first = next((name for name in _SPARSE if name in terms), "flow")
    given = [name for name in ("tenant", first) if name in terms]
    source = f"runs AS r INDEXED BY {'_'.join(('runs_listed', *given))}"
    known = _cells(connection, terms) if first == "flow" else _sparse_cells(connection, source, first, terms)
    cells = [cell for cell in known if all(terms.get(name, number) == number for name, number in cell.items())]
    if not cells:
        return iter(())
    others = [f"+r.{name} = :{name}" for name in _SPARSE if name in terms and name != first]
    equal = [*_equal([*given, *cells[0]]), *others]
    sql = _select(source, [*equal, *conditions], oldest_first=wanted.oldest_first)
    length = min(max(2 * wanted.limit // len(cells), _SHORTEST_READ), wanted.limit)
    walks = [_walk(connection, sql, wanted.parameters | cell, length) for cell in cells]
    return heapq.merge(*walks, reverse=not wanted.oldest_first)


def _cells(connection: sqlite3.Connection, terms: Mapping[str, int]) -> list[dict[str, int]]:
    where = {name: terms.get(name, NOTHING) for name in ("tenant", "flow")}
    return [{"status": status, "tag": tag} for status, tag in connection.execute(_CELLS, where)]


def _sparse_cells(
    connection: sqlite3.Connection, source: str, first: str, terms: Mapping[str, int]
) -> list[dict[str, int]]:
    """Find the cells in an index of few runs, where cells are not counted, by skipping from each cell to the next."""
    given = " AND ".join(_equal(name for name in ("tenant", first) if name in terms))
    sql = f"""SELECT r.flow, r.status, r.tag FROM {source}
        WHERE {given} AND (r.flow, r.status, r.tag) >= (:flow, :status, :tag + 1)
        ORDER BY r.flow, r.status, r.tag LIMIT 1"""  # noqa: S608 our own parts
    cells: list[dict[str, int]] = []
    cell = {"flow": -1, "status": -1, "tag": -1}
    while found := connection.execute(sql, {**terms, **cell}).fetchone():
        cell = dict(zip(cell, found, strict=True))
        cells.append(cell)
    return cells


def _walk(connection: sqlite3.Connection, sql: str, parameters: dict[str, Any], length: int) -> Iterator[_FoundRun]:
    parameters["limit"] = length
    while True:
        rows = [_FoundRun(*row) for row in connection.execute(sql, parameters)]
        yield from rows
        if len(rows) < parameters["limit"]:
            return
        parameters |= {"at": rows[-1].submitted_at, "run_id": rows[-1].run_id, "limit": parameters["limit"] * 2}


def _under_way(connection: sqlite3.Connection, wanted: _Wanted, limit: int) -> list[_FoundRun]:
    """Find the runs that were submitted before ``updated_after`` and last updated after it."""
    conditions = [
        "r.span = s.span",
        "r.submitted_at >= :updated_after - s.shorter_than",
        "r.submitted_at <= min(:updated_after, :at)",
        *wanted.conditions,
    ]
    return _gather(connection, wanted, "spans AS s CROSS JOIN runs AS r INDEXED BY runs_by_span", conditions, limit)


def _gather(
    connection: sqlite3.Connection, wanted: _Wanted, source: str, conditions: list[str], limit: int
) -> list[_FoundRun]:
    """Read all runs of the source, and keep the newest."""
    sql = _select(source, [*conditions, *_equal(wanted.terms)], oldest_first=wanted.oldest_first)
    return [_FoundRun(*row) for row in connection.execute(sql, {**wanted.parameters, "limit": limit})]


def _equal(names: Iterable[str]) -> list[str]:
    return [f"r.{name} = :{name}" for name in names]


def _select(source: str, conditions: list[str], *, oldest_first: bool) -> str:
    behind, order = (">", "ASC") if oldest_first else ("<", "DESC")
    where = " AND ".join([*conditions, f"(r.submitted_at, r.run_id) {behind} (:at, :run_id)"])
    order = f"ORDER BY r.submitted_at {order}, r.run_id {order} LIMIT :limit"
    return f"SELECT r.submitted_at, r.run_id, r.key FROM {source} WHERE {where} {order}"  # noqa: S608 our own parts


def _is_rare(connection: sqlite3.Connection, wanted: _Wanted) -> bool:
    [count] = connection.execute(_COUNT_PREFIX, {**wanted.parameters, "few": FEW + 1}).fetchone()
    return bool(count <= FEW)


def _indexed(connection: sqlite3.Connection, found: _FoundRun) -> IndexedRun:
    [summary] = connection.execute("SELECT summary FROM runs WHERE key = ?", (found.key,)).fetchone()
    return IndexedRun(Cursor(found.submitted_at, found.run_id), SUMMARY.decode(summary))

"""Pages of runs, merged from the cells that fit; the schema tells what cells are.

Two filters are no part of any order:

- ``updated_after`` T. What was submitted after T was updated after T, so a page is filled from there first, as if there
  were no such filter. What is left are the runs that were under way at T. They are found by how long they took: those
  that took less than D seconds were submitted after T - D. There is one class of runs for each doubling of D, so that
  little is looked at in vain.
- ``run_id_prefix``. If few ids begin with it, those are looked at. If many do, any part of the list has some of them.

``submitted_after`` is a place in the list: it ends there, or begins there if the oldest come first. SQLite goes by one
lower and one upper bound only, so that whatever else bounds the time of submission is put into the same bound.
"""

import heapq
import itertools
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyoco_server.adapters.readmodel.reading import SUMMARY, number_of
from pyoco_server.adapters.readmodel.schema import NOTHING
from pyoco_server.app.ports import Cursor, IndexedRun, RunQuery

FEW: Final = 5_000
"""So many runs are looked at in one go, if their ids are all there is to go by."""

_END_OF_TIME: Final = 1e300
_BEHIND_ALL: Final = "\U0010ffff"
_SHORTEST_READ: Final = 4
_SPARSE: Final = ("held", "yaml")
"""Columns that most runs do not have, each with a list of its own.

Of two, the first is searched by: few runs are held at any time."""
_CELLS: Final = "SELECT status, tag FROM cells WHERE tenant = :tenant AND flow = :flow AND runs > 0"
_COUNT_PREFIX: Final = """SELECT count(*) FROM
    (SELECT 1 FROM runs AS r INDEXED BY runs_by_id WHERE r.run_id >= :prefix AND r.run_id < :prefix_end LIMIT :few)"""


class _Found(NamedTuple):
    """A run on a page. They compare as they are listed, since no two have the same id."""

    submitted_at: float
    run_id: str
    key: int


class _Wanted(NamedTuple):
    """What a run must be like, but for its place in the list."""

    terms: Mapping[str, int]
    """By column."""
    conditions: list[str]
    parameters: dict[str, Any]
    limit: int
    oldest_first: bool


def page(connection: sqlite3.Connection, query: RunQuery) -> list[IndexedRun]:
    """The newest runs that fit."""
    connection.execute("BEGIN")  # all that follows sees the same runs
    try:
        wanted = _wanted(connection, query)
        if wanted is None:
            return []
        return [_indexed(connection, found) for found in _search(connection, query, wanted)]
    finally:
        connection.execute("COMMIT")


def prefix_range(prefix: str) -> dict[str, str]:
    """Between which texts the ids lie that begin with this."""
    return {"prefix": prefix, "prefix_end": prefix + _BEHIND_ALL}


def _wanted(connection: sqlite3.Connection, query: RunQuery) -> _Wanted | None:
    """None if no run can be like that."""
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
    """Behind which run the list begins."""
    if not query.oldest_first:
        return query.before or Cursor(_END_OF_TIME, "")
    begin = -_END_OF_TIME if query.submitted_after is None else math.nextafter(query.submitted_after, math.inf)
    return max(query.before or Cursor(begin, ""), Cursor(begin, ""))


def _search(connection: sqlite3.Connection, query: RunQuery, wanted: _Wanted) -> list[_Found]:
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


def _listed(connection: sqlite3.Connection, wanted: _Wanted, conditions: list[str]) -> Iterator[_Found]:
    """The list from the place on, merged from its cells; one that was not read far enough is read on."""
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
    """The cells of runs that few others share a list with: not counted, but found by jumping from each to the next."""
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


def _walk(connection: sqlite3.Connection, sql: str, parameters: dict[str, Any], length: int) -> Iterator[_Found]:
    parameters["limit"] = length
    while True:
        rows = [_Found(*row) for row in connection.execute(sql, parameters)]
        yield from rows
        if len(rows) < parameters["limit"]:
            return
        parameters |= {"at": rows[-1].submitted_at, "run_id": rows[-1].run_id, "limit": parameters["limit"] * 2}


def _under_way(connection: sqlite3.Connection, wanted: _Wanted, limit: int) -> list[_Found]:
    """Those that were submitted, but not yet for the last time updated, when ``updated_after`` was now."""
    conditions = [
        "r.span = s.span",
        "r.submitted_at >= :updated_after - s.shorter_than",
        "r.submitted_at <= min(:updated_after, :at)",
        *wanted.conditions,
    ]
    return _gather(connection, wanted, "spans AS s CROSS JOIN runs AS r INDEXED BY runs_by_span", conditions, limit)


def _gather(
    connection: sqlite3.Connection, wanted: _Wanted, source: str, conditions: list[str], limit: int
) -> list[_Found]:
    """Look at all that the source offers, and keep the newest."""
    sql = _select(source, [*conditions, *_equal(wanted.terms)], oldest_first=wanted.oldest_first)
    return [_Found(*row) for row in connection.execute(sql, {**wanted.parameters, "limit": limit})]


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


def _indexed(connection: sqlite3.Connection, found: _Found) -> IndexedRun:
    [summary] = connection.execute("SELECT summary FROM runs WHERE key = ?", (found.key,)).fetchone()
    return IndexedRun(Cursor(found.submitted_at, found.run_id), SUMMARY.decode(summary))

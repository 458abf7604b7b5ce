"""Count the runs that match a filter, and select those of given runs that do.

The cells hold the counts by tenant, flow and tag. There are no counts by the prefix of an id: such runs are read one by
one, up to a limit. For a tenant only its own runs are read, so the answer depends on no other tenant.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from pyoco_server.adapters.sqlite_index.paging import FEW, prefix_range
from pyoco_server.adapters.sqlite_index.queries import SUMMARY, number_of
from pyoco_server.adapters.sqlite_index.schema import NOTHING
from pyoco_server.app.ports import Cursor, IndexedRun, RunFilter, RunTally

_AT_A_TIME: Final = 200
_OF_CELLS: Final = """SELECT text, sum(runs) FROM cells JOIN terms ON id = status
    WHERE tenant = :tenant AND flow = :flow{tag} GROUP BY status HAVING sum(runs) > 0"""
_TAGS: Final = """SELECT text, runs FROM cells JOIN terms ON id = tag
    WHERE tenant = :tenant AND flow = :any AND status = :status AND runs > 0 ORDER BY runs DESC, text LIMIT :limit"""
_BY_ID: Final = """SELECT run_id, status, flow, tag FROM runs INDEXED BY runs_by_id
    WHERE run_id >= :prefix AND run_id < :prefix_end ORDER BY run_id LIMIT :most"""
_OF_TENANT: Final = """SELECT run_id, status, tag FROM runs INDEXED BY runs_listed_tenant
    WHERE tenant = :tenant LIMIT :most"""
_OF_TENANT_AND_FLOW: Final = """SELECT run_id, status, flow, tag FROM runs INDEXED BY runs_listed_tenant_flow
    WHERE tenant = :tenant AND flow = :flow LIMIT :most"""
_MANY: Final = 100_000
"""How many runs of a tenant are read: the index holds all columns this needs side by side."""


def tally(connection: sqlite3.Connection, wanted: RunFilter) -> RunTally:
    """Count the runs that match, by status."""
    terms = _terms(connection, wanted)
    if terms is None:
        return RunTally({}, is_complete=True)
    if wanted.run_id_prefix:
        return _of_prefix(connection, terms, wanted.run_id_prefix)
    sql = _OF_CELLS.format(tag=" AND tag = :tag" if "tag" in terms else "")
    return RunTally(dict(connection.execute(sql, {"tenant": NOTHING, "flow": NOTHING, **terms})), is_complete=True)


def tags(connection: sqlite3.Connection, status: str, tenant_id: str | None, limit: int) -> dict[str, int]:
    """Return the tags of the runs that have this status, and the number of runs of each."""
    number = number_of(connection, status)
    tenant = NOTHING if tenant_id is None else number_of(connection, tenant_id)
    wanted = {"status": number, "tenant": tenant, "any": NOTHING, "limit": max(limit, 0)}
    return dict(connection.execute(_TAGS, wanted))


def among(connection: sqlite3.Connection, run_ids: Sequence[str], wanted: RunFilter) -> list[IndexedRun]:
    """Return those of these runs that match."""
    terms = _terms(connection, wanted)
    if terms is None:
        return []
    asked = [run_id for run_id in run_ids if run_id.startswith(wanted.run_id_prefix or "")]
    found: list[IndexedRun] = []
    for begin in range(0, len(asked), _AT_A_TIME):
        part = asked[begin : begin + _AT_A_TIME]
        places = ", ".join("?" * len(part))
        conditions = "".join(f" AND {name} = ?" for name in terms)
        sql = f"""SELECT submitted_at, run_id, summary FROM runs INDEXED BY runs_by_id
            WHERE run_id IN ({places}){conditions}"""  # noqa: S608 our own parts
        rows = connection.execute(sql, (*part, *terms.values()))
        found += [IndexedRun(Cursor(at, run_id), SUMMARY.decode(summary)) for at, run_id, summary in rows]
    return found


def _terms(connection: sqlite3.Connection, wanted: RunFilter) -> dict[str, int] | None:
    """Return the term numbers of the filter by column; None if no run can match."""
    terms: dict[str, int] = {}
    for name, text in {"tenant": wanted.tenant_id, "flow": wanted.flow, "tag": wanted.tag}.items():
        if text is not None:
            number = number_of(connection, text)
            if number is None:
                return None
            terms[name] = number
    return terms


def _of_prefix(connection: sqlite3.Connection, terms: dict[str, int], prefix: str) -> RunTally:
    source, most = (
        (_OF_TENANT_AND_FLOW if "flow" in terms else _OF_TENANT, _MANY) if "tenant" in terms else (_BY_ID, FEW)
    )
    parameters: dict[str, Any] = {**terms, **prefix_range(prefix), "most": most + 1}
    fitting = "".join(f" AND {name} = :{name}" for name in terms if name != "tenant")
    sql = f"""WITH looked_at AS MATERIALIZED ({source})
        SELECT NULL, count(*) FROM looked_at UNION ALL
        SELECT text, count(*) FROM looked_at JOIN terms ON id = status
        WHERE run_id >= :prefix AND run_id < :prefix_end{fitting} GROUP BY status"""  # noqa: S608 our own parts
    (_, looked_at), *counts = connection.execute(sql, parameters)
    return RunTally(dict(counts), is_complete=looked_at <= most)

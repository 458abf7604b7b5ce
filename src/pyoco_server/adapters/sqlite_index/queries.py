"""Short queries of the index; for pages of runs, see ``paging``."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pyoco_server.adapters.sqlite_index.schema import NOTHING
from pyoco_server.app.ports import DueWait, SilentRun, TenantUsage
from pyoco_server.app.snapshots.status import TERMINAL_RUN

_COUNTS: Final = """SELECT text, sum(runs) FROM cells JOIN terms ON id = status
    WHERE tenant = ? AND flow = ? GROUP BY status HAVING sum(runs) > 0"""
_DUE: Final = """SELECT run_id, node_id FROM waits INDEXED BY waits_by_deadline JOIN runs ON key = run
    WHERE deadline <= ? ORDER BY deadline LIMIT ?"""
_SILENT: Final = """SELECT summary, alive_at, key FROM runs INDEXED BY runs_by_life
    WHERE (alive_at, key) > (?, ?) AND alive_at < ? ORDER BY alive_at, key LIMIT ?"""
_HELD: Final = "SELECT count(*) FROM runs INDEXED BY runs_listed_held WHERE held IS NOT NULL"
_HELD_OF_TENANT: Final = """SELECT count(*) FROM runs INDEXED BY runs_listed_tenant_held
    WHERE tenant = ? AND held IS NOT NULL"""
_SUBMITTED_SINCE: Final = """SELECT count(*) FROM cells CROSS JOIN runs INDEXED BY runs_listed_tenant
    ON runs.tenant = cells.tenant AND runs.status = cells.status AND runs.tag = cells.tag AND submitted_at > :since
    WHERE cells.tenant = :tenant AND cells.flow = :any AND cells.runs > 0"""
_AT_A_TIME: Final = 500
_BEFORE_ALL: Final = (-1.0, 0)
_DAY_SEC: Final = 86_400
_LAST_MOMENT: Final = 1e12

SUMMARY: Final = msgspec.json.Decoder(dict[str, Any])


def number_of(connection: sqlite3.Connection, text: str) -> int | None:
    """Return the number of a term; None if no run ever had it."""
    found = connection.execute("SELECT id FROM terms WHERE text = ?", (text,)).fetchone()
    return None if found is None else int(found[0])


def feed(connection: sqlite3.Connection) -> tuple[str, int]:
    """Return which snapshots the index was made from, and up to which position."""
    origin, position = connection.execute("SELECT origin, position FROM feed").fetchone()
    return str(origin), int(position)


def compared(connection: sqlite3.Connection) -> str:
    """Return the state of the stores up to which they were compared; empty if they were not."""
    return str(connection.execute("SELECT compared FROM feed").fetchone()[0])


def unknown(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[str]:
    """Return those of these runs that the index does not have."""
    sql = "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run_id = value)"
    return [str(run_id) for (run_id,) in connection.execute(sql, (msgspec.json.encode(run_ids).decode(),))]


def counts(connection: sqlite3.Connection, tenant_id: str | None) -> dict[str, int]:
    """Count the runs by status."""
    tenant = NOTHING if tenant_id is None else number_of(connection, tenant_id)
    return {} if tenant is None else dict(connection.execute(_COUNTS, (tenant, NOTHING)))


def held_count(connection: sqlite3.Connection, tenant_id: str | None) -> int:
    """Return how many runs are held; reads only the entries of held runs, in an index that has no others."""
    if tenant_id is None:
        return int(connection.execute(_HELD).fetchone()[0])
    tenant = number_of(connection, tenant_id)
    return 0 if tenant is None else int(connection.execute(_HELD_OF_TENANT, (tenant,)).fetchone()[0])


def redriven(connection: sqlite3.Connection, run_ids: Sequence[str], tenant_id: str | None) -> dict[str, list[str]]:
    """Return the runs that repeat these, by the run that they repeat."""
    tenant = None if tenant_id is None else number_of(connection, tenant_id)
    if tenant_id is not None and tenant is None:
        return {}
    found: dict[str, list[str]] = {}
    for begin in range(0, len(run_ids), _AT_A_TIME):
        part = run_ids[begin : begin + _AT_A_TIME]
        places = ", ".join("?" * len(part))
        sql = f"""SELECT redrive_of, run_id FROM runs INDEXED BY runs_by_redrive
            WHERE redrive_of IN ({places}) AND tenant = ifnull(?, tenant) ORDER BY submitted_at, run_id"""  # noqa: S608 our own parts
        for of, run_id in connection.execute(sql, (*part, tenant)):
            found.setdefault(of, []).append(run_id)
    return found


def day_of(moment: float) -> int:
    """Return the number of the day (UTC) of a time in Unix seconds; times out of range share the last day."""
    return int(min(max(moment, 0.0), _LAST_MOMENT) // _DAY_SEC)


def submitted_on_day_of(connection: sqlite3.Connection, moment: float, tenant_id: str | None) -> int:
    """Count the existing runs that were submitted on this day (UTC)."""
    tenant = NOTHING if tenant_id is None else number_of(connection, tenant_id)
    sql = "SELECT runs FROM days WHERE tenant = ? AND day = ?"
    found = connection.execute(sql, (tenant, day_of(moment))).fetchone()
    return 0 if found is None else int(found[0])


def usage(connection: sqlite3.Connection, tenant_id: str, since: float) -> TenantUsage:
    """Return what the runs of a tenant use; reads the counts, and the runs submitted later than ``since``."""
    tenant = number_of(connection, tenant_id)
    if tenant is None:
        return TenantUsage(0, 0, 0)
    by_status = dict(connection.execute(_COUNTS, (tenant, NOTHING)))
    [submitted] = connection.execute(_SUBMITTED_SINCE, {"tenant": tenant, "any": NOTHING, "since": since}).fetchone()
    [stored] = connection.execute("SELECT coalesce(sum(bytes), 0) FROM days WHERE tenant = ?", (tenant,)).fetchone()
    live = sum(runs for status, runs in by_status.items() if status not in TERMINAL_RUN)
    return TenantUsage(live, int(submitted), int(stored))


def due(connection: sqlite3.Connection, now: float, limit: int) -> list[DueWait]:
    """Return the waits past their deadline."""
    return [DueWait(*row) for row in connection.execute(_DUE, (now, max(limit, 0)))]


def silent(
    connection: sqlite3.Connection, since: float, limit: int, after: tuple[float, int] | None
) -> list[SilentRun]:
    """Return the runs without a recent heartbeat, after a place in their order."""
    rows = connection.execute(_SILENT, (*(after or _BEFORE_ALL), since, max(limit, 0)))
    return [SilentRun(SUMMARY.decode(summary), (alive_at, key)) for summary, alive_at, key in rows]

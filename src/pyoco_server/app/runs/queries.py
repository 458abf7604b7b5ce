"""Reads of runs: one by its id, or a page of many. The ports decide which runs exist for the caller."""

import asyncio
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.ports import (
    Cursor,
    RunIndexReader,
    RunQuery,
    SnapshotReader,
    StoredSnapshot,
    WorkerRecord,
    WorkerRegistry,
)
from pyoco_server.app.runs.redrive_plan import is_half_copied
from pyoco_server.app.runs.run_log import RunLog, RunNotFoundError
from pyoco_server.app.snapshots.codec import SnapshotUnreadableError, json_object, readable
from pyoco_server.app.snapshots.status import RunStatus, was_retracted
from pyoco_server.core.json_codec import JsonObject

AT_ONCE: Final = 32
"""How many snapshots of a page are read at the same time."""

_UNDER_WAY: Final = (RunStatus.PENDING, RunStatus.RUNNING)


class RunListing(NamedTuple):
    """A page of runs, newest first, and where the next page begins; None if there are no more."""

    items: list[JsonObject]
    following: Cursor | None


class _OwnedSnapshot(msgspec.Struct):
    tenant_id: str | None = None


async def snapshot_of(snapshots: SnapshotReader, runs: RunLog, run_id: str) -> StoredSnapshot:
    """Return the run's newest snapshot; RunNotFoundError if there is no such run.

    If the snapshot is missing, or another program damaged it, the log is folded instead. SnapshotUnreadableError if it
    is damaged and there is no log. Tenants pass their own ports, in which no run of another tenant exists.
    """
    stored = await snapshots.read(run_id)
    if stored is None:
        folded = await _snapshot_from_log(runs, StoredSnapshot(run_id, b"", position=0, revision=0))
        if folded is None:
            raise RunNotFoundError(run_id)
        return folded
    try:
        msgspec.json.decode(stored.body, type=_OwnedSnapshot)
    except (msgspec.DecodeError, RecursionError):
        try:
            readable(stored)
        except SnapshotUnreadableError:
            folded = await _snapshot_from_log(runs, stored)
            if folded is None:
                raise
            return folded
    return stored


async def _snapshot_from_log(runs: RunLog, stored: StoredSnapshot) -> StoredSnapshot | None:
    """Fold the run's log; None if it has none. The gateway repairs what is stored in the background."""
    try:
        run = await runs.open(stored.run_id)
    except RunNotFoundError:
        return None
    if was_retracted(run.execution.state) or is_half_copied(run.events):
        raise RunNotFoundError(stored.run_id)
    return stored._replace(body=msgspec.json.encode(run.snapshot()), position=run.execution.position)


async def snapshot_and_worker(
    snapshots: SnapshotReader, runs: RunLog, workers: WorkerRegistry, run_id: str
) -> tuple[JsonObject, WorkerRecord | None]:
    """Return the run's newest snapshot, and the record of the worker it names."""
    snapshot = readable(await snapshot_of(snapshots, runs, run_id))
    worker_id = snapshot.get("worker_id")
    return snapshot, await workers.get(worker_id) if isinstance(worker_id, str) and worker_id else None


async def page_of_runs(index: RunIndexReader, snapshots: SnapshotReader, query: RunQuery, *, full: bool) -> RunListing:
    """Return a page of the runs that fit. ``full``: read their snapshots; a run without one keeps its summary."""
    found = await index.page(msgspec.structs.replace(query, limit=query.limit + 1))
    shown = found[: query.limit]
    items = [run.summary for run in shown]
    if full:
        items = await _snapshots_of(snapshots, items)
    return RunListing(items, shown[-1].cursor if len(found) > query.limit else None)


async def _snapshots_of(snapshots: SnapshotReader, summaries: list[JsonObject]) -> list[JsonObject]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(summary: JsonObject) -> JsonObject:
        async with gate:
            stored = await snapshots.read(summary["run_id"])
        return (json_object(stored.body) if stored is not None else None) or summary

    return await asyncio.gather(*(one(summary) for summary in summaries))


async def ids_under_way(index: RunIndexReader, query: RunQuery) -> list[str]:
    """Return the ids of the newest runs that fit and are pending or running; at most ``query.limit``."""
    statuses = [query.status] if query.status is not None else [status.value for status in _UNDER_WAY]
    found: list[str] = []
    for status in statuses:
        page = await index.page(msgspec.structs.replace(query, status=status))
        found += [run.summary["run_id"] for run in page]
    return found[: query.limit]

"""Looking at runs: one by its id, or a page of many. Whoever asks sees their own tenant's only."""

import asyncio
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.ports import (
    Cursor,
    RunIndex,
    RunQuery,
    Snapshots,
    StoredSnapshot,
    WorkerRecord,
    WorkerRegistry,
)
from pyoco_server.app.run_desk import OpenRun, RunDesk, RunNotFoundError
from pyoco_server.app.snapshot_reading import json_object, readable, tenant_of
from pyoco_server.app.statuses import RunStatus
from pyoco_server.core.wire import JsonObject

AT_ONCE: Final = 32
"""How many snapshots of a page are read at the same time."""

_UNDER_WAY: Final = (RunStatus.PENDING, RunStatus.RUNNING)


class Page(NamedTuple):
    """Some runs, newest first, and where to go on; None if there are no more."""

    items: list[JsonObject]
    following: Cursor | None


class _Owned(msgspec.Struct):
    tenant_id: str | None = None


def may_see(asking: str | None, tenant_id: str | None) -> bool:
    """May this tenant know of a run of that one? Nobody in particular may know of all."""
    return asking is None or asking == tenant_id


async def visible_snapshot(snapshots: Snapshots, run_id: str, *, tenant_id: str | None) -> StoredSnapshot:
    """The run's newest snapshot; RunNotFoundError if there is none, or none this tenant may know of.

    SnapshotUnreadableError if something else is there in its place.
    """
    stored = await snapshots.read(run_id)
    if stored is None:
        raise RunNotFoundError(run_id)
    return visible(stored, tenant_id=tenant_id)


def visible(stored: StoredSnapshot, *, tenant_id: str | None) -> StoredSnapshot:
    """The same for a snapshot one has."""
    if not may_see(tenant_id, _owner(stored, is_told=tenant_id is None)):
        raise RunNotFoundError(stored.run_id)
    return stored


def _owner(stored: StoredSnapshot, *, is_told: bool) -> str | None:
    """Whose run it is; whoever may see everything is told if it cannot be read, to others it is nobody's."""
    try:
        return msgspec.json.decode(stored.body, type=_Owned).tenant_id
    except (msgspec.DecodeError, RecursionError):
        return tenant_of(readable(stored)) if is_told else None


async def visible_run(desk: RunDesk, run_id: str, *, tenant_id: str | None) -> OpenRun:
    """The run, read from its log; RunNotFoundError if there is none this tenant may know of."""
    run = await desk.open(run_id)
    if not may_see(tenant_id, run.projection.input.tenant_id):
        raise RunNotFoundError(run_id)
    return run


async def snapshot_and_worker(
    snapshots: Snapshots, workers: WorkerRegistry, run_id: str, *, tenant_id: str | None
) -> tuple[JsonObject, WorkerRecord | None]:
    """The run's newest snapshot, and what is known of the worker it names."""
    snapshot = readable(await visible_snapshot(snapshots, run_id, tenant_id=tenant_id))
    worker_id = snapshot.get("worker_id")
    return snapshot, await workers.get(worker_id) if isinstance(worker_id, str) and worker_id else None


async def page_of_runs(index: RunIndex, snapshots: Snapshots, query: RunQuery, *, full: bool) -> Page:
    """The runs that fit; in ``full``, their snapshots are read, and a run that is gone by then keeps its summary."""
    found = await index.page(msgspec.structs.replace(query, limit=query.limit + 1))
    shown = found[: query.limit]
    items = [run.summary for run in shown]
    if full:
        items = await _snapshots_of(snapshots, items)
    return Page(items, shown[-1].cursor if len(found) > query.limit else None)


async def _snapshots_of(snapshots: Snapshots, summaries: list[JsonObject]) -> list[JsonObject]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(summary: JsonObject) -> JsonObject:
        async with gate:
            stored = await snapshots.read(summary["run_id"])
        return (json_object(stored.body) if stored is not None else None) or summary

    return await asyncio.gather(*(one(summary) for summary in summaries))


async def ids_under_way(index: RunIndex, query: RunQuery) -> list[str]:
    """The ids of the newest runs that fit and have not ended, nor are about to; at most ``query.limit``."""
    statuses = [query.status] if query.status is not None else [status.value for status in _UNDER_WAY]
    found: list[str] = []
    for status in statuses:
        page = await index.page(msgspec.structs.replace(query, status=status))
        found += [run.summary["run_id"] for run in page]
    return found[: query.limit]

"""Runs: submit, look, list, watch, cancel."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request

from pyoco_server.app.idempotency import submit_once
from pyoco_server.app.ports import RunQuery, StoredSnapshot
from pyoco_server.app.run_desk import RunNotFoundError
from pyoco_server.app.statuses import RunStatus
from pyoco_server.app.submitting import Submission
from pyoco_server.core.wire import JsonObject, parse_object
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.gateway import run_views
from pyoco_server.gateway.bodies import CancelRun, CancelRuns, ResumeNode, SubmitBatch, SubmitRun
from pyoco_server.gateway.cursors import decode_cursor, encode_cursor
from pyoco_server.gateway.errors import ListQueryError, language_of
from pyoco_server.gateway.event_stream import EventStream, event
from pyoco_server.gateway.ids import is_id
from pyoco_server.gateway.principal import Asking, Principal
from pyoco_server.gateway.services import Services, services
from pyoco_server.messages import body_of

router = APIRouter(prefix="/runs", tags=["runs"])
Given = Annotated[Services, Depends(services)]
Include = Annotated[list[str] | None, Query(description="`records`, `full` or `all`")]

BATCH_AT_ONCE: Final = 32
HEARTBEAT_SEC: Final = 3.0
LONGEST_WATCH_SEC: Final = 600.0


@router.post("", summary="Submit a run")
async def submit_run(
    body: SubmitRun, given: Given, asking: Asking, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    """Accepted when its log, its snapshot and its job are stored, and not before.

    With an ``Idempotency-Key`` the same request again gives the same run.
    """
    submission = _submission(body, given, asking)
    if idempotency_key:
        snapshot = await submit_once(given.submitter, given.desk, submission, asking.actor, key=idempotency_key)
    else:
        snapshot = await given.submitter.submit(submission, asking.actor)
    return {"run_id": snapshot["run_id"], "status": snapshot["status"]}


@router.post("/batch", summary="Submit many runs")
async def submit_batch(body: SubmitBatch, request: Request, given: Given, asking: Asking) -> dict[str, Any]:
    """Each run has its own result: a run id, or an error."""
    gate = asyncio.Semaphore(BATCH_AT_ONCE)

    async def one(run: SubmitRun) -> dict[str, Any]:
        async with gate:
            try:
                snapshot = await given.submitter.submit(_submission(run, given, asking), asking.actor)
            except PyocoServerError as error:
                return body_of(error, language_of(request))
        return {"run_id": snapshot["run_id"], "status": snapshot["status"]}

    return {"results": await asyncio.gather(*(one(run) for run in body.runs))}


@router.get("", summary="List runs", response_model=None)
async def list_runs(  # noqa: PLR0913 the filters of the specification
    given: Given,
    asking: Asking,
    *,
    status: RunStatus | None = None,
    flow: str | None = None,
    tag: str | None = None,
    updated_after: float | None = None,
    cursor: str | None = None,
    workflow_yaml_sha256: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    include: Include = None,
) -> list[JsonObject] | JsonObject:
    """Newest first. With ``updated_after`` or ``cursor`` the answer is an object with ``items`` and ``next_cursor``."""
    query = RunQuery(
        tenant_id=asking.tenant_id,
        status=status.value if status is not None else None,
        flow=flow,
        tag=tag,
        updated_after=updated_after,
        workflow_yaml_sha256=workflow_yaml_sha256,
        before=decode_cursor(cursor, asking.tenant_id) if cursor is not None else None,
        limit=limit + 1,
    )
    full = _wants_full(include)
    found = await given.index.page(query)
    page = found[:limit]
    items = [await _full(given, run.summary) if full else run.summary for run in page]
    if updated_after is None and cursor is None:
        return items
    following = encode_cursor(page[-1].cursor, asking.tenant_id) if len(found) > limit else None
    return {"items": items, "next_cursor": following}


@router.get("/{run_id}", summary="How a run stands")
async def get_run(run_id: str, given: Given, asking: Asking, include: Include = None) -> JsonObject:
    """The newest snapshot."""
    records = run_views.wants_records(include)
    stored = await _stored(given, asking, run_id)
    snapshot = run_views.snapshot_view(stored.body, records=records)
    worker_id = snapshot.get("worker_id")
    record = await given.workers.get(worker_id) if worker_id else None
    timeout_sec = given.settings.heartbeat.worker_disconnect_timeout_sec
    return run_views.with_worker(snapshot, record, now=given.clock.now().timestamp(), timeout_sec=timeout_sec)


@router.get("/{run_id}/tasks", summary="The tasks of a run")
async def get_tasks(run_id: str, given: Given, asking: Asking) -> JsonObject:
    """Tasks, and their records as far as they fit."""
    return run_views.tasks_view((await _stored(given, asking, run_id)).body)


@router.get("/{run_id}/watch", summary="Watch a run", response_class=EventStream)
async def watch_run(
    run_id: str,
    request: Request,
    given: Given,
    asking: Asking,
    *,
    include: Include = None,
    since: float | None = None,
    timeout_sec: Annotated[float, Query(ge=1, le=LONGEST_WATCH_SEC)] = LONGEST_WATCH_SEC,
) -> EventStream:
    """Server-sent events: ``snapshot`` whenever the run changes, ``heartbeat`` in between."""
    records = run_views.wants_records(include)
    stored = await _stored(given, asking, run_id)
    client = asking.api_key_id or (request.client.host if request.client else "")
    given.hub.check(client)
    return EventStream(_events(given, stored, client, since=since, timeout_sec=timeout_sec, records=records))


async def _events(
    given: Services, stored: StoredSnapshot, client: str, *, since: float | None, timeout_sec: float, records: bool
) -> AsyncIterator[bytes]:
    clock, run_id = given.clock, stored.run_id
    ends_at = clock.now().timestamp() + timeout_sec
    with given.hub.watch(run_id, client) as watcher:
        newest = await given.snapshots.read(run_id)  # it may have changed before we began to watch
        watcher.put((newest or stored).body)
        while (left := ends_at - clock.now().timestamp()) > 0:
            body = await watcher.next(min(left, HEARTBEAT_SEC))
            now = clock.now().timestamp()
            if body is None:
                yield event("heartbeat", {"run_id": run_id, "ts": now})
                continue
            snapshot = run_views.snapshot_view(body, records=records)
            if since is None or snapshot.get("updated_at", 0.0) > since:
                yield event("snapshot", {"run_id": run_id, "snapshot": snapshot, "ts": now})


@router.post("/cancel", summary="Cancel many runs")
async def cancel_runs(body: CancelRuns, given: Given, asking: Asking) -> dict[str, Any]:
    """Cancel the runs named, or the newest ones that fit the filter and have not ended; at most 1,000 at a time."""
    ids = body.run_ids
    if ids is None:
        if body.status is None and body.flow is None and body.tag is None:
            raise InvalidInputError("say which runs: run_ids, or at least one of status, flow and tag")
        statuses = [body.status] if body.status else [RunStatus.PENDING.value, RunStatus.RUNNING.value]
        ids = await _matching(given, asking, body, statuses)
    gate = asyncio.Semaphore(BATCH_AT_ONCE)

    async def one(run_id: str) -> dict[str, Any]:
        async with gate:
            try:
                await _stored(given, asking, run_id)
                snapshot = await given.desk.cancel(run_id, asking.actor, body.reason)
            except RunNotFoundError:
                return {"run_id": run_id, "status": None}
        return {"run_id": run_id, "status": snapshot["status"]}

    return {"results": await asyncio.gather(*(one(run_id) for run_id in ids))}


@router.post("/{run_id}/cancel", summary="Cancel a run")
async def cancel_run(run_id: str, given: Given, asking: Asking, body: CancelRun | None = None) -> JsonObject:
    """Recorded at once; the answer is ``CANCELLING``. A run that has ended stays as it is."""
    await _stored(given, asking, run_id)
    snapshot = await given.desk.cancel(run_id, asking.actor, body.reason if body is not None else None)
    return run_views.snapshot_view(snapshot, records=False)


@router.post("/{run_id}/nodes/{node_id:path}/resume", summary="Resume a wait")
async def resume_node(run_id: str, node_id: str, given: Given, asking: Asking, body: ResumeNode) -> JsonObject:
    """Let a waiting node go on; what is given becomes its result."""
    await _stored(given, asking, run_id)
    snapshot = await given.desk.resume(run_id, node_id, body.input, asking.actor, key=body.resume_key)
    return run_views.snapshot_view(snapshot, records=False)


@router.post("/{run_id}/archive", summary="Put an ended run away")
async def archive_run(run_id: str, given: Given, asking: Asking) -> JsonObject:
    """Only a run that has ended can be archived."""
    await _stored(given, asking, run_id)
    return run_views.snapshot_view(await given.desk.archive(run_id, asking.actor), records=False)


# --- What the handlers share -----------------------------------------------------------------------------------------


def _submission(body: SubmitRun, given: Services, asking: Principal) -> Submission:
    return Submission(
        flow_name=body.flow_name,
        params=parse_object(body.params),
        tag=body.tag or given.settings.routing.default_tag,
        tags=tuple(body.tags) if body.tags is not None else None,
        tenant_id=asking.tenant_id,
        api_key_id=asking.api_key_id,
    )


async def _stored(given: Services, asking: Principal, run_id: str) -> StoredSnapshot:
    """The run's snapshot; RunNotFoundError if there is none, or none this one may know of."""
    stored = await given.snapshots.read(run_id) if is_id(run_id) else None
    if stored is None or not asking.may_see(_tenant_of(stored.body)):
        raise RunNotFoundError(run_id)
    return stored


def _tenant_of(body: bytes) -> str | None:
    return msgspec.json.decode(body, type=_Owned).tenant_id


class _Owned(msgspec.Struct):
    tenant_id: str | None = None


def _wants_full(include: list[str] | None) -> bool:
    try:
        return run_views.wants_full(include)
    except InvalidInputError as error:
        raise ListQueryError(str(error)) from error


async def _full(given: Services, summary: JsonObject) -> JsonObject:
    stored = await given.snapshots.read(summary["run_id"])
    return summary if stored is None else run_views.snapshot_view(stored.body, records=True)


async def _matching(given: Services, asking: Principal, body: CancelRuns, statuses: list[str]) -> list[str]:
    found: list[str] = []
    for status in statuses:
        query = RunQuery(tenant_id=asking.tenant_id, status=status, flow=body.flow, tag=body.tag, limit=1_000)
        found += [run.summary["run_id"] for run in await given.index.page(query)]
    return found[:1_000]

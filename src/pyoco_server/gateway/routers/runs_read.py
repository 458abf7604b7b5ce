"""Reads of runs: the list, one run, its tasks."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query, Request

from pyoco_server.app.ports import RunQuery
from pyoco_server.app.runs.queries import page_of_runs, snapshot_and_worker, snapshot_of
from pyoco_server.app.snapshots.codec import readable
from pyoco_server.app.snapshots.status import TERMINAL_RUN, RunStatus
from pyoco_server.gateway import run_views
from pyoco_server.gateway.errors import ListQueryError
from pyoco_server.gateway.principal import PrincipalDep
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.run_views import Include
from pyoco_server.gateway.schemas.parameters import RunId, decode_cursor, encode_cursor
from pyoco_server.gateway.schemas.responses import RunPageDocument, RunSummary, RunTasks, RunWithWorker
from pyoco_server.gateway.services import ServicesDep
from pyoco_server.gateway.waiting import WaitSec, newest_within
from pyoco_server.identifiers import RUN_ID

router = APIRouter(prefix="/runs", tags=["runs"])


class Order(StrEnum):
    """How a list is ordered, by the time of submission."""

    NEWEST = "newest"
    OLDEST = "oldest"


@router.get(
    "",
    summary="List runs",
    responses=documented("ERR-PYOCO-0017", "ERR-PYOCO-0003", ok=list[RunSummary] | RunPageDocument),
)
async def list_runs(  # noqa: PLR0913 the filters of the specification
    services: ServicesDep,
    principal: PrincipalDep,
    *,
    status: RunStatus | None = None,
    flow: Annotated[str | None, Query(description="The flow's name.")] = None,
    tag: Annotated[str | None, Query(description="The tag its jobs are queued by.")] = None,
    updated_after: Annotated[
        float | None, Query(allow_inf_nan=False, description="Changed later than this; Unix seconds.")
    ] = None,
    submitted_after: Annotated[
        float | None, Query(allow_inf_nan=False, description="Submitted later than this; Unix seconds.")
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
    workflow_yaml_sha256: Annotated[str | None, Query(description="Of the flow.yaml it was submitted with.")] = None,
    held: Annotated[
        bool | None, Query(description="`true`: only runs that are held because no worker has the code they need next.")
    ] = None,
    run_id_prefix: Annotated[str | None, Query(max_length=RUN_ID.longest, description="How the id begins.")] = None,
    order: Annotated[
        Order | None, Query(description="By submission, and which come first; the oldest not with `updated_after`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    include: Include = None,
) -> Json:
    """The runs submitted last; among them, those that changed last come first, unless there is an ``order``.

    With ``updated_after`` or ``cursor`` the answer is an object with ``items`` and ``next_cursor``. Pages are in the
    order of submission, which never changes, so that a client that follows the cursors sees every run once.
    Every run that this gateway has accepted before is in the list.
    """
    if order is Order.OLDEST and updated_after is not None:
        raise ListQueryError("order: with updated_after, the newest come first; leave out updated_after, or order")
    if held is False:
        raise ListQueryError("held: only true is valid; leave it out to list all runs")
    query = RunQuery(
        status=status.value if status is not None else None,
        flow=flow,
        tag=tag,
        updated_after=updated_after,
        submitted_after=submitted_after,
        workflow_yaml_sha256=workflow_yaml_sha256,
        held=bool(held),
        run_id_prefix=run_id_prefix,
        oldest_first=order is Order.OLDEST,
        before=decode_cursor(cursor, principal.tenant_id) if cursor is not None else None,
        limit=limit,
    )
    page = await page_of_runs(
        await services.up_to_date_index(), services.snapshots, query, full=run_views.wants_full(include)
    )
    items = page.items if order is not None else run_views.by_change(page.items)
    redriven = await services.index.redriven([item["run_id"] for item in items])
    for item in items:
        run_views.add_redriven(item, redriven)
    for item in items:
        for name in run_views.NOT_SHOWN:
            item.pop(name, None)
    if updated_after is None and cursor is None:
        return Json(items)
    following = encode_cursor(page.following, principal.tenant_id) if page.following is not None else None
    return Json({"items": items, "next_cursor": following})


@router.get(
    "/{run_id}",
    summary="A run",
    responses=documented("ERR-PYOCO-0005", "ERR-PYOCO-0002", "ERR-PYOCO-0102", "ERR-PYOCO-0003", ok=RunWithWorker),
)
async def get_run(
    run_id: RunId,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    *,
    include: Include = None,
    wait_sec: WaitSec = 0.0,
) -> Json:
    """The newest snapshot; with ``wait_sec`` the last one, if the run ends in that time."""
    if wait_sec:
        await newest_within(services, request, principal, run_id, wait_sec)
    found, worker = await snapshot_and_worker(services.snapshots, services.run_log, services.workers, run_id)
    snapshot = run_views.snapshot_view(found, records=run_views.wants_records(include))
    if str(snapshot.get("status")) in TERMINAL_RUN:
        run_views.add_redriven(snapshot, await (await services.up_to_date_index()).redriven([run_id]))
    timeout_sec = services.settings.heartbeat.worker_disconnect_timeout_sec
    return Json(run_views.with_worker(snapshot, worker, now=services.now, timeout_sec=timeout_sec))


@router.get(
    "/{run_id}/tasks",
    summary="The tasks of a run",
    responses=documented("ERR-PYOCO-0005", "ERR-PYOCO-0002", "ERR-PYOCO-0003", ok=RunTasks),
)
async def get_tasks(run_id: RunId, services: ServicesDep) -> Json:
    """The tasks and their records, as far as the size of a snapshot allows."""
    stored = await snapshot_of(services.snapshots, services.run_log, run_id)
    return Json(run_views.tasks_view(readable(stored)))

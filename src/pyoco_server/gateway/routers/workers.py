"""Workers: who is there, and which of them are shown."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Query

from pyoco_server.app.ports import WorkerRecord
from pyoco_server.app.worker_views import selected, shown
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.bodies import PatchWorker
from pyoco_server.gateway.documents import WorkerDocument, WorkerPatched
from pyoco_server.gateway.errors import WorkerNotFoundError
from pyoco_server.gateway.outages import in_time
from pyoco_server.gateway.services import Given
from pyoco_server.gateway.strict_json import StrictRoute
from pyoco_server.identifiers import WORKER_ID

router = APIRouter(prefix="/workers", tags=["workers"], route_class=StrictRoute)


class Scope(StrEnum):
    """Which workers."""

    ACTIVE = "active"
    ALL = "all"


class State(StrEnum):
    """In which state."""

    RUNNING = "RUNNING"
    IDLE = "IDLE"
    STOPPED_GRACEFUL = "STOPPED_GRACEFUL"
    DISCONNECTED = "DISCONNECTED"


@router.get(
    "",
    summary="List workers",
    responses=documented("ERR-PYOCO-0019", "ERR-PYOCO-0003", ok=list[WorkerDocument]),
)
async def list_workers(
    given: Given,
    scope: Annotated[
        Scope, Query(description="`active`: only `RUNNING` and `IDLE` ones, whatever the state asked for.")
    ] = Scope.ACTIVE,
    state: State | None = None,
    *,
    include_hidden: bool = False,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Json:
    """The workers in the registry; those that are active and not hidden, unless others are asked for."""
    timeout_sec = given.settings.heartbeat.worker_disconnect_timeout_sec
    found = shown(await given.workers.all(), now=given.now, timeout_sec=timeout_sec)
    wanted = selected(
        found,
        active_only=scope is Scope.ACTIVE,
        state=state.value if state is not None else None,
        include_hidden=include_hidden,
    )
    return Json(wanted[:limit])


@router.patch(
    "/{worker_id}",
    summary="Hide or show a worker",
    responses=documented("ERR-PYOCO-0020", "ERR-PYOCO-0019", "ERR-PYOCO-0101", "ERR-PYOCO-0003", ok=WorkerPatched),
)
async def patch_worker(
    worker_id: Annotated[str, Path(description="The worker's id.")], body: PatchWorker, given: Given
) -> Json:
    """Hidden workers are left out of the list; nothing else changes for them."""
    now = given.now

    def change(found: WorkerRecord | None) -> WorkerRecord | None:
        return None if found is None else {**found, "hidden": body.hidden, "updated_at": now}

    if not WORKER_ID.fits(worker_id) or await in_time(given.workers.update(worker_id, change)) is None:
        raise WorkerNotFoundError(f"worker not found: '{worker_id:.80}'")
    return Json({"worker_id": worker_id, "hidden": body.hidden, "updated_at": now})

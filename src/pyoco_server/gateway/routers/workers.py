"""``/workers``: the registry of workers, and which of them are hidden."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Query

from pyoco_server.app.ports import WorkerRecord
from pyoco_server.app.recovery.worker_views import selected, shown
from pyoco_server.gateway.errors import WorkerNotFoundError
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.schemas.requests import PatchWorker
from pyoco_server.gateway.schemas.responses import WorkerDocument, WorkerPatched
from pyoco_server.gateway.schemas.strict_json import StrictRoute
from pyoco_server.gateway.services import ServicesDep
from pyoco_server.gateway.timeouts import in_time
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
    services: ServicesDep,
    scope: Annotated[
        Scope, Query(description="`active`: only `RUNNING` and `IDLE` ones, whatever the `state`.")
    ] = Scope.ACTIVE,
    state: State | None = None,
    *,
    include_hidden: bool = False,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Json:
    """The workers in the registry; by default those that are active and not hidden."""
    timeout_sec = services.settings.heartbeat.worker_disconnect_timeout_sec
    found = shown(await services.workers.all(), now=services.now, timeout_sec=timeout_sec)
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
    worker_id: Annotated[str, Path(description="The worker's id.")], body: PatchWorker, services: ServicesDep
) -> Json:
    """The list leaves hidden workers out; nothing else changes for them."""
    now = services.now

    def change(found: WorkerRecord | None) -> WorkerRecord | None:
        return None if found is None else {**found, "hidden": body.hidden, "updated_at": now}

    if not WORKER_ID.fits(worker_id) or await in_time(services.workers.update(worker_id, change)) is None:
        raise WorkerNotFoundError(f"worker not found: '{worker_id:.80}'")
    return Json({"worker_id": worker_id, "hidden": body.hidden, "updated_at": now})

"""Workers: who is there, and which of them are shown."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from pyoco_server.app.ports import WorkerRecord
from pyoco_server.app.worker_views import ACTIVE, shown
from pyoco_server.gateway.bodies import PatchWorker
from pyoco_server.gateway.errors import WorkerNotFoundError
from pyoco_server.gateway.services import Services, services

router = APIRouter(prefix="/workers", tags=["workers"])
Given = Annotated[Services, Depends(services)]


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


@router.get("", summary="List workers")
async def list_workers(
    given: Given,
    scope: Scope = Scope.ACTIVE,
    state: State | None = None,
    *,
    include_hidden: bool = False,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[dict[str, Any]]:
    """The workers in the registry; those that are active and not hidden, unless others are asked for."""
    now = given.clock.now().timestamp()
    timeout_sec = given.settings.heartbeat.worker_disconnect_timeout_sec
    found = shown(await given.workers.all(), now=now, timeout_sec=timeout_sec)
    if state is not None:
        found = [worker for worker in found if worker["state"] == state.value]
    elif scope is Scope.ACTIVE:
        found = [worker for worker in found if worker["state"] in ACTIVE]
    if not include_hidden:
        found = [worker for worker in found if not worker.get("hidden")]
    return found[:limit]


@router.patch("/{worker_id}", summary="Hide or show a worker")
async def patch_worker(worker_id: str, body: PatchWorker, given: Given) -> dict[str, Any]:
    """Hidden workers are left out of the list; nothing else changes for them."""
    now = given.clock.now().timestamp()

    def change(found: WorkerRecord | None) -> WorkerRecord | None:
        return None if found is None else {**found, "hidden": body.hidden, "updated_at": now}

    changed = await given.workers.update(worker_id, change)
    if changed is None:
        raise WorkerNotFoundError(f"there is no worker '{worker_id}'")
    return {"worker_id": worker_id, "hidden": body.hidden, "updated_at": now}

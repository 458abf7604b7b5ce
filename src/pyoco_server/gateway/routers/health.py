"""``/health`` and ``/health/ready``: whether the gateway runs, and whether it can work."""

import math
from typing import Final

from fastapi import APIRouter, Request

from pyoco_server.gateway.responses import Documented, Json
from pyoco_server.gateway.schemas.responses import Healthy, Readiness
from pyoco_server.gateway.services import Awaited, Services

router = APIRouter(tags=["health"])
_READINESS: Final[Documented] = {
    200: {"model": Readiness},
    503: {"model": Readiness, "description": "NATS is not connected, or stores nothing."},
}


@router.get("/health", summary="Is the gateway there?", responses={200: {"model": Healthy}})
async def health() -> Json:
    """Always ``ok`` while the gateway answers; ``/health/ready`` reports whether it can work."""
    return Json({"status": "ok"})


@router.get("/health/ready", summary="Can the gateway work?", responses=_READINESS)
async def ready(request: Request) -> Json:
    """Whether NATS is connected, and how far the index lags behind (null: it never was up to date).

    Also not ready for some seconds after a submission failed because NATS stored nothing. `synced_by` says which side
    puts acknowledged data on the disk: the NATS server that this gateway started (`server`), gateways and workers
    (`clients`), neither (`none`), or a NATS server of the `operator`; null: it is not known yet.
    """
    services: Services | Awaited = request.app.state.services
    connected, is_ready, lag_sec, synced_by = False, False, math.inf, None
    if isinstance(services, Services):
        connected, lag_sec = services.store.is_connected, services.index_updater.lag_sec
        synced_by = services.synced_by()
        is_ready = connected and not services.writes.are_failing
    body = {
        "status": "ready" if is_ready else "unavailable",
        "nats": "connected" if connected else "disconnected",
        "index_lag_sec": round(lag_sec, 3) if math.isfinite(lag_sec) else None,
        "synced_by": synced_by,
    }
    return Json(body, status_code=200 if is_ready else 503)

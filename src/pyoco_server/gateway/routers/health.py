"""Is the gateway there, and can it work?"""

import math
from typing import Final

from fastapi import APIRouter, Request

from pyoco_server.gateway.answers import Documented, Json
from pyoco_server.gateway.documents import Healthy, Readiness
from pyoco_server.gateway.services import Awaited, Services

router = APIRouter(tags=["health"])
_READINESS: Final[Documented] = {
    200: {"model": Readiness},
    503: {"model": Readiness, "description": "NATS is away, or stores nothing."},
}


@router.get("/health", summary="Is the gateway there?", responses={200: {"model": Healthy}})
async def health() -> Json:
    """Always ``ok`` while the gateway answers; whether it can work is told by ``/health/ready``."""
    return Json({"status": "ok"})


@router.get("/health/ready", summary="Can the gateway work?", responses=_READINESS)
async def ready(request: Request) -> Json:
    """Whether NATS can be reached, and how far the index lags behind (null: it never was up to date).

    Not ready either, for some seconds, when a submission has just failed because NATS stored nothing.
    """
    given: Services | Awaited = request.app.state.services
    connected, is_ready, lag_sec = False, False, math.inf
    if isinstance(given, Services):
        connected, lag_sec = given.store.is_connected, given.keeper.lag_sec
        is_ready = connected and not given.writes.are_failing
    body = {
        "status": "ready" if is_ready else "unavailable",
        "nats": "connected" if connected else "disconnected",
        "index_lag_sec": round(lag_sec, 3) if math.isfinite(lag_sec) else None,
    }
    return Json(body, status_code=200 if is_ready else 503)

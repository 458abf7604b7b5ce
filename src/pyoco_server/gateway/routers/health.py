"""Is the gateway there, and can it work?"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from pyoco_server.gateway.services import Services, services

router = APIRouter(tags=["health"])


@router.get("/health", summary="Is the gateway there?")
async def health() -> dict[str, str]:
    """Always ``ok`` while the gateway answers; whether it can work is told by ``/health/ready``."""
    return {"status": "ok"}


@router.get("/health/ready", summary="Can the gateway work?", responses={503: {"description": "NATS is away"}})
async def ready(given: Annotated[Services, Depends(services)], response: Response) -> dict[str, Any]:
    """Whether NATS can be reached, and how far the index lags behind."""
    connected = given.store.is_connected
    if not connected:
        response.status_code = 503
    return {
        "status": "ready" if connected else "unavailable",
        "nats": "connected" if connected else "disconnected",
        "index_lag_sec": round(given.keeper.lag_sec, 3),
    }

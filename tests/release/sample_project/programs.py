"""Programs that submit runs, watch and steer them, and run flows without a server."""

from typing import Any

from pyoco_server import (
    ApiError,
    AsyncClient,
    Client,
    Engine,
    GatewayUnreachableError,
    RunResult,
    WaitTimeoutError,
    configure_logging,
)

from .flows import flow


def submit(url: str, month: str) -> str:
    """Submit a run, let it go on, wait for its end."""
    with Client(url, api_key="pyoco_k_s") as client:
        try:
            run_id: str = client.submit("report", {"month": month})
            client.resume(run_id, "approval", {"by": "ann"})
            ended: dict[str, Any] = client.wait(run_id, timeout=30.0)
        except WaitTimeoutError:
            return "RUNNING"
        except ApiError as error:
            return f"refused: {error.err_id}"
        except GatewayUnreachableError:
            return "no answer"
        return str(ended["status"])


async def watch(url: str, run_id: str) -> list[str]:
    """Every status a run has on its way."""
    async with AsyncClient(url) as client:
        return [str(snapshot["status"]) async for snapshot in client.watch(run_id)]


def at_home(month: str) -> RunResult:
    """The same flow in this process."""
    configure_logging(service="report")
    with Engine() as engine:
        run_id: str = engine.start(flow, {"month": month})
        engine.resume(run_id, "approval", {"by": "ann"})
        return engine.wait(run_id)

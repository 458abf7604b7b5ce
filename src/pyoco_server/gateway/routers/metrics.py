"""Metrics in the format Prometheus reads. What is counted is counted as it happens; nothing is scanned."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from pyoco_server.app.statuses import RunStatus
from pyoco_server.app.worker_views import ACTIVE, shown
from pyoco_server.gateway.services import Services, services

router = APIRouter(tags=["metrics"])
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(given: Annotated[Services, Depends(services)]) -> Response:
    """Runs by status, workers alive, dead letters, the queue, and the gateway's own state."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(await _collect(given)))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE)


class _Collected:
    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


async def _collect(given: Services) -> list[Metric]:
    counts = await given.index.counts()
    runs = GaugeMetricFamily("pyoco_runs_total", "Runs by status.", labels=["status"])
    for status in RunStatus:
        runs.add_metric([status.value], counts.get(status.value, 0))
    now, timeout_sec = given.clock.now().timestamp(), given.settings.heartbeat.worker_disconnect_timeout_sec
    workers = shown(await given.workers.all(), now=now, timeout_sec=timeout_sec)
    alive = sum(worker["state"] in ACTIVE for worker in workers)
    states = GaugeMetricFamily("pyoco_workers", "Workers by state.", labels=["state"])
    for state in ("RUNNING", "IDLE", "STOPPED_GRACEFUL", "DISCONNECTED"):
        states.add_metric([state], sum(worker["state"] == state for worker in workers))
    tags = sorted({tag for worker in workers for tag in worker.get("tags", ())} | {given.settings.routing.default_tag})
    backlog = GaugeMetricFamily("pyoco_queue_backlog", "Jobs nobody has taken yet, by tag.", labels=["tag"])
    for tag in tags:
        backlog.add_metric([tag], await given.queue.backlog(tag))
    return [
        runs,
        GaugeMetricFamily("pyoco_workers_alive_total", "Workers that are there.", value=alive),
        states,
        GaugeMetricFamily("pyoco_dlq_messages_total", "Dead letters kept.", value=await given.dead_letters.count()),
        backlog,
        GaugeMetricFamily("pyoco_watchers", "Open connections that watch a run.", value=given.hub.count),
        GaugeMetricFamily("pyoco_index_lag_seconds", "How far the index lags behind.", value=given.keeper.lag_sec),
    ]

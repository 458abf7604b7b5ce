"""Metrics in the format Prometheus reads. What is counted is counted as it happens; no run is looked at."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from pyoco_server.app.statuses import RunStatus
from pyoco_server.app.worker_views import ACTIVE, STATES, shown
from pyoco_server.gateway.answers import Documented, documented
from pyoco_server.gateway.services import Given, Services

router = APIRouter(tags=["metrics"])
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_EXAMPLE: Final = 'pyoco_runs_total{status="COMPLETED"} 1.0\n'
_TEXT: Final[dict[str, Any]] = {
    "description": "One line a value.",
    "content": {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}},
}
_ANSWERS: Final[Documented] = {200: _TEXT, **documented("ERR-PYOCO-0003")}


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response, responses=_ANSWERS)
async def metrics(given: Given) -> Response:
    """Runs by status, workers alive, dead letters, the queue, and the gateway's own state."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(await _collect(given)))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE})


class _Collected:
    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


async def _collect(given: Services) -> list[Metric]:
    counts, records, letters = await asyncio.gather(
        given.index.counts(), given.workers.all(), given.dead_letters.count()
    )
    runs = GaugeMetricFamily("pyoco_runs_total", "Runs by status.", labels=["status"])
    for status in RunStatus:
        runs.add_metric([status.value], counts.get(status.value, 0))
    timeout_sec = given.settings.heartbeat.worker_disconnect_timeout_sec
    workers = shown(records, now=given.now, timeout_sec=timeout_sec)
    alive = [worker for worker in workers if worker["state"] in ACTIVE]
    states = GaugeMetricFamily("pyoco_workers", "Workers by state.", labels=["state"])
    for state in STATES:
        states.add_metric([state], sum(worker["state"] == state for worker in workers))
    tags = sorted({str(tag) for worker in alive for tag in worker["tags"]} | {given.settings.routing.default_tag})
    backlog = GaugeMetricFamily("pyoco_queue_backlog", "Jobs nobody has taken yet, by tag.", labels=["tag"])
    for tag, jobs in zip(tags, await asyncio.gather(*map(given.queue.backlog, tags)), strict=True):
        backlog.add_metric([tag], jobs)
    return [
        runs,
        GaugeMetricFamily("pyoco_workers_alive_total", "Workers that are there.", value=len(alive)),
        states,
        GaugeMetricFamily("pyoco_dlq_messages_total", "Dead letters kept.", value=letters),
        backlog,
        GaugeMetricFamily("pyoco_watchers", "Open connections that watch a run.", value=given.hub.count),
        GaugeMetricFamily("pyoco_index_lag_seconds", "How far the index lags behind.", value=given.keeper.lag_sec),
    ]

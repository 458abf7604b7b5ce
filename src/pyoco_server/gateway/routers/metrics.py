"""``GET /metrics``, in the format of Prometheus. The index keeps the counts up to date, so that no run is read."""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any, Final

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pyoco_server.app.ports import LATENCY_BOUNDS_SEC, Histogram
from pyoco_server.app.recovery.worker_views import ACTIVE, STATES, shown
from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.gateway.principal import PrincipalDep
from pyoco_server.gateway.responses import Documented, documented
from pyoco_server.gateway.services import Services, ServicesDep

router = APIRouter(tags=["metrics"])
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_EXAMPLE: Final = 'pyoco_runs_total{status="COMPLETED"} 1\n'
_TEXT: Final[dict[str, Any]] = {
    "description": "One line a value.",
    "content": {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}},
}
_ANSWERS: Final[Documented] = {200: _TEXT, **documented("ERR-PYOCO-0003")}


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response, responses=_ANSWERS)
async def metrics(services: ServicesDep, principal: PrincipalDep) -> Response:
    """Runs by status, how long they took, workers alive, dead letters, the queue, and the gateway's own state."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(await _collect(services, principal.tenant_id)))
    return Response(_with_whole_numbers(generate_latest(registry).decode()), headers={"Content-Type": CONTENT_TYPE})


def _with_whole_numbers(text: str) -> str:
    """Write whole numbers as such; the library writes every value as a float."""
    return "\n".join(line if not line or line.startswith("#") else _whole(line) for line in text.split("\n"))


def _whole(line: str) -> str:
    sample, _, value = line.rpartition(" ")
    return f"{sample} {float(value):.0f}" if float(value).is_integer() else line


class _Collected:
    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


async def _collect(services: Services, tenant_id: str | None) -> list[Metric]:
    counts, today, latencies, pending, records, letters = await asyncio.gather(
        services.index.counts(),
        services.index.submitted_on_day_of(services.now),
        services.index.latencies(),
        services.index.tags(RunStatus.PENDING.value),
        services.workers.all(),
        services.dead_letters.count(),
    )
    held = await services.index.held_count()
    runs = GaugeMetricFamily("pyoco_runs_total", "Runs by status.", labels=["status"])
    for status in RunStatus:
        runs.add_metric([status.value], counts.get(status.value, 0))
    timeout_sec = services.settings.heartbeat.worker_disconnect_timeout_sec
    workers = shown(records, now=services.now, timeout_sec=timeout_sec)
    alive = [worker for worker in workers if worker["state"] in ACTIVE]
    states = GaugeMetricFamily("pyoco_workers", "Workers by state.", labels=["state"])
    for state in STATES:
        states.add_metric([state], sum(worker["state"] == state for worker in workers))
    served = sorted({str(tag) for worker in alive for tag in worker["tags"]} | {services.settings.routing.default_tag})
    jobs = dict(zip(served, await asyncio.gather(*map(services.queue.backlog, served)), strict=True))
    backlog = GaugeMetricFamily("pyoco_queue_backlog", "Jobs that no worker has taken yet, by tag.", labels=["tag"])
    for tag, count in sorted(({**pending, **jobs}).items()):  # without a worker for the tag: its pending runs
        backlog.add_metric([tag], count)
    refused = CounterMetricFamily(
        "pyoco_quota_refusals_total", "Submissions that this gateway refused because of a quota.", labels=["quota"]
    )
    for quota, count in services.refused_by_quota().items():
        refused.add_metric([quota], count)
    used = GaugeMetricFamily("pyoco_quota_used_ratio", "The used part of each quota of the tenant.", labels=["quota"])
    for quota, share in (await services.quota_shares()).items():
        used.add_metric([quota], share)
    return [
        runs,
        refused,
        used,
        GaugeMetricFamily("pyoco_runs_held", "Runs held because no worker has the code they need next.", value=held),
        GaugeMetricFamily("pyoco_runs_today_total", "Runs submitted since midnight (UTC).", value=today),
        _histogram("pyoco_run_queue_seconds", "From submission to the start of a run.", latencies.queued),
        _histogram("pyoco_run_latency_seconds", "From submission to the end of a run.", latencies.whole),
        GaugeMetricFamily("pyoco_workers_alive_total", "Workers that are alive.", value=len(alive)),
        states,
        GaugeMetricFamily("pyoco_dlq_messages_total", "Dead letters kept.", value=letters),
        backlog,
        GaugeMetricFamily(
            "pyoco_watchers", "Open connections that watch a run.", value=services.hub.streams.count_of(tenant_id)
        ),
        GaugeMetricFamily(
            "pyoco_index_lag_seconds", "How far the index lags behind.", value=services.index_updater.lag_sec
        ),
    ]


def _histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    bounds = [*map(str, LATENCY_BOUNDS_SEC), "+Inf"]
    buckets = [*zip(bounds, itertools.accumulate(found.runs), strict=True)]
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=found.seconds)

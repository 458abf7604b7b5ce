"""Write docs/reference/metrics.md from the code that answers ``GET /metrics``, or check that it is current."""

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyoco_server.app.ports import LATENCY_BOUNDS_SEC
from pyoco_server.app.recovery.worker_views import STATES
from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.app.tenancy.quotas import QUOTAS
from pyoco_server.gateway.routers import metrics
from tools.pages import REFERENCE, code, run, table

PAGE: Final = REFERENCE / "metrics.md"
KINDS: Final = {"GaugeMetricFamily": "gauge", "CounterMetricFamily": "counter", "_histogram": "histogram"}
LABELS: Final = {
    "status": f"one of {code(status.value for status in RunStatus)}; always with all values",
    "state": f"one of {code(STATES)}; always with all values",
    "quota": f"one of {code(QUOTAS)}; the used ratio only of quotas that are set, for a tenant's key",
    "tag": "a tag that workers serve, the default tag, or one that pending runs wait for",
}
READING: Final = {
    "pyoco_runs_total": "Grows and shrinks: a run is counted under the status it has now. Use `deriv`, not `rate`.",
    "pyoco_runs_held": "Above zero: deploy the code, `GET /runs?held=true` says which; they resume by themselves then.",
    "pyoco_runs_today_total": "Starts again from 0 at midnight (UTC); a run that is removed is no longer counted.",
    "pyoco_run_queue_seconds": "Rises when there are too few workers for what is submitted.",
    "pyoco_run_latency_seconds": "`histogram_quantile(0.95, rate(pyoco_run_latency_seconds_bucket[5m]))`",
    "pyoco_quota_refusals_total": "Growing: a tenant asks for more than it may have. Counts from the gateway's start.",
    "pyoco_quota_used_ratio": "Near 1: the tenant will soon be refused. A key for all tenants does not get it.",
    "pyoco_workers_alive_total": "Zero: nothing will run.",
    "pyoco_workers": "`DISCONNECTED` above zero: a worker died, or lost NATS.",
    "pyoco_dlq_messages_total": "Growing: runs fail in ways a retry did not help; `GET /dlq` says why.",
    "pyoco_queue_backlog": "Growing: too few workers for that tag, or none.",
    "pyoco_watchers": "Of this gateway only, as is the next.",
    "pyoco_index_lag_seconds": "Above a few seconds: lists are behind, because NATS is away or slow.",
}

INTRODUCTION: Final = """\
# Metrics

Written by `make docs` from `src/pyoco_server/gateway/routers/metrics.py`.

`GET /metrics` answers in the text format of Prometheus. Counts are updated as events happen; no run is read,
so a million runs cost as little as ten. Every gateway answers the same, except for metrics marked as its own: scrape
one of them, or use the maximum. With API keys on, the scraper needs one with the scope
`operate` ([security](../security.md)). What to alert on is in [Running it for others](../production.md#what-to-watch).
"""


class Found(NamedTuple):
    """A metric in the code."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


def page() -> str:
    """Return the page."""
    found = [*in_code()]
    rows = ((f"`{one.name}`", one.kind, code(one.labels), one.help, READING[one.name]) for one in found)
    used = dict.fromkeys(label for one in found for label in one.labels)
    labels = table(("label", "value"), ((f"`{label}`", LABELS[label]) for label in used))
    least, most = LATENCY_BOUNDS_SEC[0], LATENCY_BOUNDS_SEC[-1]
    bounds = f"The histograms have {len(LATENCY_BOUNDS_SEC)} bounds from {least:g} s to {most:g} s, and `+Inf`."
    metrics_table = table(("name", "type", "labels", "meaning", "how to read it"), rows)
    return f"{INTRODUCTION}\n{metrics_table}\n\n{labels}\n\n{bounds}\n"


def in_code() -> Iterator[Found]:
    """Return the metrics in the order of the answer."""
    tree = ast.parse(inspect.getsource(metrics))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            named = [ast.literal_eval(word.value) for word in node.keywords if word.arg == "labels"]
            labels = tuple(str(label) for given in named for label in given)
            yield Found(str(texts[0]), KINDS[node.func.id], str(texts[1]), labels)


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))

"""A nightly report: two sources are asked at once, tried again while they are down, and put together."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
import json
import urllib.error
import urllib.request
from typing import Any

from pyoco import Flow, task

from pyoco_server import Backoff, BackoffKind, TaskContext, options

WEB = ("http://", "https://")


def _ask(url: str) -> Any:  # noqa: ANN401 whatever the source has
    """One try, short: trying again is the flow's business. Every error is raised, so that the log has it."""
    if not url.startswith(WEB):
        raise ValueError(f"{url!r} is not the address of a source")
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (only http and https get here)
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()  # it is an answer, too, and holds its connection
        raise ConnectionError(f"{url} answered {error.code}") from None


@task
def sales(source: str = "http://127.0.0.1:9000") -> list[dict[str, Any]]:
    """What was sold, a row an order."""
    rows: list[dict[str, Any]] = _ask(f"{source}/sales.json")
    return rows


@task
def stock(source: str = "http://127.0.0.1:9000") -> dict[str, int]:
    """What is left."""
    left: dict[str, int] = _ask(f"{source}/stock.json")
    return left


@task
def report(ctx: TaskContext, sales: list[dict[str, Any]], stock: dict[str, int]) -> dict[str, Any]:
    """Put it together. The same input gives the same file, so that it does no harm to be called twice."""
    sold: dict[str, int] = {}
    for row in sales:
        sold[row["item"]] = sold.get(row["item"], 0) + row["count"]
    lines = [f"{item}: {count} sold, {stock.get(item, 0)} left" for item, count in sorted(sold.items())]
    return {"file": ctx.save_artifact("report.txt", "\n".join(lines) + "\n"), "lines": lines}


@task
def announce(report: dict[str, Any], chat: str = "http://127.0.0.1:9000") -> str:
    """Announce the report; it may fail."""
    answer: str = _ask(f"{chat}/announce.json?lines={len(report['lines'])}")
    return answer


# Up to five more attempts, after about 1, 4, 16, 60 and 60 seconds. A fifth of each pause is random, so that many runs
# do not query a source at the same moment when it is available again.
patient = Backoff(kind=BackoffKind.EXPONENTIAL, delay_sec=1, factor=4, cap_sec=60, jitter=0.2)
for source in (sales, stock):
    options(source, retries=5, backoff=patient, timeout_sec=20)
# "isolate": it may fail, and the run completes all the same.
options(announce, retries=1, fail_policy="isolate")

nightly = Flow("nightly-report") >> (sales & stock) >> report >> announce

"""The flow `make demo` runs: a fork, a task that fails once and is tried again, a join."""

from typing import Any

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import TaskContext, options

attempts = iter(range(1, 10))


@task  # type: ignore[untyped-decorator]
def orders(month: str = "2026-01") -> list[dict[str, Any]]:
    """Where it all begins."""
    return [{"month": month, "amount": amount} for amount in (120, 80, 45)]


@task  # type: ignore[untyped-decorator]
def revenue(orders: list[dict[str, Any]]) -> int:
    """One branch."""
    return sum(order["amount"] for order in orders)


@task  # type: ignore[untyped-decorator]
def exchange_rate(ctx: TaskContext) -> float:
    """The other branch: the source is down at the first try."""
    if next(attempts) == 1:
        raise ConnectionError("the rate service did not answer")
    ctx.progress(100, "got the rate")
    return 1.08


@task  # type: ignore[untyped-decorator]
async def report(revenue: int, exchange_rate: float) -> str:
    """Where the branches meet; plain and async functions mix."""
    return f"{revenue} EUR are {revenue * exchange_rate:.2f} USD"


flow = Flow("monthly-report") >> orders >> (revenue & options(exchange_rate, retries=2, backoff=0.3)) >> report

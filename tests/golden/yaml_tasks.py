"""Functions a recorded flow.yaml refers to."""

from typing import Any


def rows(ctx: Any) -> list[int]:
    return list(range(int(ctx.params["n"])))


def one(ctx: Any) -> Any:
    return ctx.get_var("row", None)


def add(ctx: Any) -> int:
    return int(ctx.results.get("add", 0)) + 1


def fetch(address: str, times: int) -> str:
    return address * times


def done(ctx: Any) -> str:
    return f"after {len(ctx.results)} results"

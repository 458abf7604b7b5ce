"""Functions a flow.yaml refers to."""

from typing import Any


def first(ctx: Any) -> int:
    return int(ctx.params["n"])


def second(ctx: Any) -> int:
    return int(ctx.results["first"]) + 1

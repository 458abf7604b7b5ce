"""Functions that a flow.yaml of the tests names."""

from typing import Any


def first(ctx: Any) -> int:
    return int(ctx.params["n"])


def second(ctx: Any) -> int:
    return int(ctx.results["first"]) + 1


def refuse(ctx: Any) -> int:
    """Fails for one item of a loop."""
    item = int(ctx.get_var("item"))
    if item == ctx.params["bad"]:
        raise ValueError(f"item {item} is bad")
    return item

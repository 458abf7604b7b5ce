"""The service Restate calls: three durable steps that do nothing."""

import restate  # type: ignore[import-not-found]  # in an environment of its own

three = restate.Service("three")


async def nothing() -> None:
    """A step."""


@three.handler()  # type: ignore[untyped-decorator]  # as above
async def run(ctx: restate.Context) -> int:
    """Every step is recorded before the next begins."""
    for name in ("one", "two", "three"):
        await ctx.run_typed(name, nothing)
    return 3


app = restate.app([three])

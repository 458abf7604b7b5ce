"""DBOS: worker and client are one process, which is how it is meant to be used; PostgreSQL is the server."""

import asyncio
import sys

from dbos import DBOS  # type: ignore[import-not-found]  # in an environment of its own

from bench.peers.programs.client_loop import Client, serve


@DBOS.step()  # type: ignore[untyped-decorator]  # as above
async def nothing() -> None:
    """A step; its end is committed before the next begins."""


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def three() -> int:
    """Three steps."""
    for _ in range(3):
        await nothing()
    return 3


async def run_one() -> None:
    """Start one in this process and wait for its result."""
    handle = await DBOS.start_workflow_async(three)
    if await handle.get_result() != 3:
        raise RuntimeError("the run did not return what it should")


async def page() -> int:
    """The newest, with what they were given and what they returned."""
    return len(await DBOS.list_workflows_async(limit=50, sort_desc=True))


async def main() -> None:
    """Connect, then answer."""
    config = {"name": "bench", "system_database_url": sys.argv[1], "log_level": "WARNING", "run_admin_server": False}
    DBOS(config=config)
    DBOS.launch()
    await serve(Client(run_one, page))
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())

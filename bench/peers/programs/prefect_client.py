"""Prefect: the flow is called in the client's process, and every state it passes goes to the server."""

import asyncio
import logging

from prefect import flow, task  # type: ignore[import-not-found]  # in an environment of its own
from prefect.client.orchestration import get_client  # type: ignore[import-not-found]
from prefect.client.schemas.sorting import FlowRunSort  # type: ignore[import-not-found]
from prefect.states import Scheduled  # type: ignore[import-not-found]

from bench.peers.programs.client_loop import Client, many, serve


@task  # type: ignore[untyped-decorator]  # as above
async def nothing() -> None:
    """A task."""


@flow  # type: ignore[untyped-decorator]
async def three() -> int:
    """Three tasks."""
    for _ in range(3):
        await nothing()
    return 3


async def run_one() -> None:
    """Call it; a deployment with a worker would start a process for every run, which takes seconds."""
    if await three() != 3:
        raise RuntimeError("the run did not return what it should")


async def fill(count: int, in_flight: int, ends_at: float) -> int:
    """Create runs without running them: they are listed like others, and that is much quicker."""
    async with get_client() as api:

        async def create() -> None:
            await api.create_flow_run(three, state=Scheduled())

        return await many(create, count, in_flight, ends_at)


async def page() -> int:
    """The newest."""
    async with get_client() as api:
        return len(await api.read_flow_runs(limit=50, sort=FlowRunSort.EXPECTED_START_TIME_DESC))


if __name__ == "__main__":
    logging.disable(logging.INFO)
    asyncio.run(serve(Client(run_one, page, fill=fill)))

"""Temporal's workflow, its activities, and the worker that runs them."""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow  # type: ignore[import-not-found]  # in an environment of its own
from temporalio.client import Client  # type: ignore[import-not-found]
from temporalio.worker import Worker  # type: ignore[import-not-found]

QUEUE = "bench"


@activity.defn  # type: ignore[untyped-decorator]  # as above
async def nothing() -> None:
    """A step; its end is recorded by the server before the next begins."""


@workflow.defn
class Three:
    """Three activities, one after the other."""

    @workflow.run  # type: ignore[untyped-decorator]
    async def run(self) -> int:
        """Run them."""
        for _ in range(3):
            await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=30))
        return 3


async def main() -> None:
    """Work until stopped."""
    client = await Client.connect(sys.argv[1])
    await Worker(client, task_queue=QUEUE, workflows=[Three], activities=[nothing]).run()


if __name__ == "__main__":
    asyncio.run(main())

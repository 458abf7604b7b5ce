"""The client of Temporal."""

import asyncio
import sys
import uuid

import temporalio.client  # type: ignore[import-not-found]  # in an environment of its own

from bench.peers.programs.client_loop import Client, many, serve
from bench.peers.programs.temporal_work import QUEUE, Three


class Temporal:
    """Executes workflows over gRPC."""

    def __init__(self, connected: temporalio.client.Client) -> None:
        self._temporal = connected

    async def run_one(self) -> None:
        """Start one and wait for its result."""
        if await self._temporal.execute_workflow(Three.run, id=uuid.uuid4().hex, task_queue=QUEUE) != 3:
            raise RuntimeError("the run did not return what it should")

    async def fill(self, count: int, in_flight: int, ends_at: float) -> int:
        """Start workflows without a worker: they are listed like others, and that is much quicker."""

        async def start() -> None:
            await self._temporal.start_workflow(Three.run, id=uuid.uuid4().hex, task_queue="unserved")

        return await many(start, count, in_flight, ends_at)

    async def page(self) -> int:
        """One page of the list, which has the newest first."""
        found = self._temporal.list_workflows(page_size=50)
        await found.fetch_next_page()
        return len(found.current_page or ())


async def main() -> None:
    """Connect, then answer."""
    temporal = Temporal(await temporalio.client.Client.connect(sys.argv[1]))
    await serve(Client(temporal.run_one, temporal.page, fill=temporal.fill))


if __name__ == "__main__":
    asyncio.run(main())

"""A process that applies changes until it is killed: ``python -m tests.adapters.sqlite_index.applying PATH``."""

import asyncio
import random
import sys

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from tests.adapters.sqlite_index.snapshots import random_change

RUNS = 300
MOST_AT_ONCE = 60


async def main(path: str) -> None:
    async with SqliteRunIndex(path) as index:
        position = await index.position()
        sizes = random.Random(position)
        while True:
            print(position, flush=True)  # noqa: T201 what the parent listens for
            end = position + sizes.randrange(1, MOST_AT_ONCE)
            await index.apply([random_change(number, runs=RUNS) for number in range(position + 1, end + 1)], end)
            position = end


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

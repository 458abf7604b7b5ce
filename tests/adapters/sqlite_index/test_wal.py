"""The write-ahead log of the index stays small, also while readers are active and after a kill."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.adapters.sqlite_index.index import MOST_WAL_BYTES
from pyoco_server.adapters.sqlite_index.schema import WAL_BYTES
from pyoco_server.app.ports import RunQuery, SnapshotChange
from tests.adapters.sqlite_index.snapshots import random_change

RUNS = 10_000
BATCH = 500
A_BATCH_BYTES = 8 * 1024 * 1024
"""More than one of these batches writes."""
READERS = 2
BATCHES = 30
"""They write more than the log may hold."""


def wal_of(path: Path) -> int:
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def batch(number: int, size: int = BATCH) -> tuple[list[SnapshotChange], int]:
    """Changes of runs anywhere in the index, so that each touches pages of its own."""
    first, source = number * size + 1, random.Random(number)
    changes = [random_change(source.randrange(1_000_000), runs=RUNS) for _ in range(size)]
    return [change._replace(sequence=first + place) for place, change in enumerate(changes)], first + size


def test_the_write_ahead_log_is_bounded_during_writes_and_reads(tmp_path: Path) -> None:
    """Readers that overlap keep SQLite from emptying the log by itself."""

    async def body() -> None:
        path = tmp_path / "index.sqlite"
        async with SqliteRunIndex(path) as index:
            done, sizes = asyncio.Event(), list[int]()

            async def read() -> None:
                while not done.is_set():
                    assert len(await index.page(RunQuery(limit=20))) <= 20

            reading = [asyncio.create_task(read()) for _ in range(READERS)]
            for number in range(BATCHES):
                await index.apply(*batch(number))
                sizes.append(wal_of(path))
            done.set()
            await asyncio.gather(*reading)
            assert max(sizes) <= MOST_WAL_BYTES + A_BATCH_BYTES
            assert await index.position() == BATCHES * BATCH + 1

    asyncio.run(body())


def test_a_load_of_very_many_runs_leaves_a_small_write_ahead_log(tmp_path: Path) -> None:
    """What readers need is made for all of them in one transaction."""

    async def body() -> None:
        path = tmp_path / "index.sqlite"
        async with SqliteRunIndex(path) as index:
            for number in range(5):
                await index.apply(*batch(number, 3_000))
            await index.page(RunQuery())
            assert wal_of(path) <= MOST_WAL_BYTES

    asyncio.run(body())


def test_the_next_process_empties_the_write_ahead_log_of_a_killed_one(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    command = [sys.executable, "-m", "tests.adapters.sqlite_index.applying", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 our own module
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.kill()
    assert wal_of(path) > 0

    async def body() -> None:
        async with SqliteRunIndex(path) as index:
            assert wal_of(path) == 0
            assert await index.position() > 0

    asyncio.run(body())


def test_the_histogram_bounds_match_the_classes() -> None:
    assert WAL_BYTES < MOST_WAL_BYTES <= 32 * 1024 * 1024

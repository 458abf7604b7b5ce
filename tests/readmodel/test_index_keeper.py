"""The keeper over snapshots in memory: the index follows, listeners hear of it."""

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.adapters.readmodel import SqliteRunIndex
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.ports import RunQuery, SnapshotChange
from tests.readmodel.snapshots import snapshot
from tests.waiting import wait_until


def body(**fields: object) -> bytes:
    return json.dumps(snapshot(**fields)).encode()


async def ids(index: SqliteRunIndex) -> list[str]:
    return sorted(run.cursor.run_id for run in await index.page(RunQuery(limit=2000)))


def with_index(test: Callable[[SqliteRunIndex], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with SqliteRunIndex() as index:
            await test(index)

    asyncio.run(opened())


@asynccontextmanager
async def running(keeper: IndexKeeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_catching_up_reads_all_there_is_and_tells_of_it() -> None:
    async def test(index: SqliteRunIndex) -> None:
        snapshots, told = MemorySnapshots(), list[SnapshotChange]()
        keeper = IndexKeeper(MemorySnapshotFeed(snapshots), index, told.append)
        assert (keeper.is_current, keeper.lag_sec) == (False, math.inf)
        for number in range(1203):
            await snapshots.write(f"r{number:04}", body(), position=1)
        await snapshots.delete("r0007")
        await keeper.catch_up()
        assert keeper.is_current
        assert keeper.lag_sec < 5
        assert len(await ids(index)) == 1202
        assert await index.position() == 1204
        assert [change.run_id for change in told] == [f"r{n:04}" for n in range(1203) if n != 7] + ["r0007"]
        assert told[-1].body is None
        await keeper.catch_up()
        assert len(told) == 1203

    with_index(test)


def test_a_change_is_in_the_index_when_listeners_hear_of_it() -> None:
    async def test(index: SqliteRunIndex) -> None:
        snapshots, positions = MemorySnapshots(), list[tuple[int, int]]()

        def on_change(change: SnapshotChange) -> None:
            [reached] = index._connections[0].execute("SELECT position FROM feed").fetchone()
            positions.append((change.sequence, reached))

        keeper = IndexKeeper(MemorySnapshotFeed(snapshots), index, on_change, poll_sec=60)
        async with running(keeper):
            await wait_until(lambda: keeper.is_current)
            for number in range(1, 6):
                await snapshots.write("r", body(version=number), position=number)
                await wait_until(lambda number=number: len(positions) == number)  # type: ignore[misc]
        assert all(sequence <= reached for sequence, reached in positions)

    with_index(test)


def test_snapshots_that_were_begun_anew_make_the_index_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def test(index: SqliteRunIndex) -> None:
        old = MemorySnapshots()
        for number in range(5):
            await old.write(f"old{number}", body(), position=1)
        await IndexKeeper(MemorySnapshotFeed(old), index, lambda _: None).catch_up()
        new = MemorySnapshots()
        for number in range(9):  # more than there were before: the position alone would not tell
            await new.write(f"new{number}", body(), position=1)
        await IndexKeeper(MemorySnapshotFeed(new), index, lambda _: None).catch_up()
        assert await ids(index) == [f"new{number}" for number in range(9)]
        assert await index.counts() == {"RUNNING": 9}

    with caplog.at_level(logging.INFO):
        with_index(test)
    assert [getattr(record, "action", "") for record in caplog.records] == ["run_index_rebuilt"]


def test_a_keeper_goes_on_where_another_stopped() -> None:
    async def test(index: SqliteRunIndex) -> None:
        snapshots, told = MemorySnapshots(), list[str]()
        await snapshots.write("a", body(), position=1)
        await IndexKeeper(MemorySnapshotFeed(snapshots), index, lambda _: None).catch_up()
        await snapshots.write("b", body(), position=1)
        await IndexKeeper(MemorySnapshotFeed(snapshots), index, lambda change: told.append(change.run_id)).catch_up()
        assert told == ["b"]
        assert await ids(index) == ["a", "b"]

    with_index(test)

"""The index updater over snapshots in memory: it applies changes, then notifies listeners."""

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import RunQuery, SnapshotChange
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from tests.adapters.sqlite_index.snapshots import snapshot
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
async def running(keeper: IndexUpdater) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_catch_up_applies_all_snapshots_and_notifies_the_listener() -> None:
    async def test(index: SqliteRunIndex) -> None:
        snapshots, seen = MemorySnapshots(), list[SnapshotChange]()
        keeper = IndexUpdater(MemorySnapshotFeed(snapshots), index, seen.append)
        assert (keeper.is_current, keeper.lag_sec) == (False, math.inf)
        for number in range(1203):
            await snapshots.write(f"r{number:04}", body(), position=1)
        await snapshots.delete("r0007")
        await keeper.catch_up()
        assert keeper.is_current
        assert keeper.lag_sec < 5
        assert len(await ids(index)) == 1202
        assert await index.position() == 1204
        assert [change.run_id for change in seen] == [f"r{n:04}" for n in range(1203) if n != 7] + ["r0007"]
        assert seen[-1].body is None
        await keeper.catch_up()
        assert len(seen) == 1203

    with_index(test)


def test_a_change_is_in_the_index_before_listeners_are_notified() -> None:
    async def test(index: SqliteRunIndex) -> None:
        snapshots, positions = MemorySnapshots(), list[tuple[int, int]]()

        def on_change(change: SnapshotChange) -> None:
            [reached] = index._connections[0].execute("SELECT position FROM feed").fetchone()
            positions.append((change.sequence, reached))

        keeper = IndexUpdater(MemorySnapshotFeed(snapshots), index, on_change, poll_sec=60)
        async with running(keeper):
            await wait_until(lambda: keeper.is_current)
            for number in range(1, 6):
                await snapshots.write("r", body(version=number), position=number)
                await wait_until(lambda number=number: len(positions) == number)  # type: ignore[misc]
        assert all(sequence <= reached for sequence, reached in positions)

    with_index(test)


def test_recreated_snapshots_rebuild_the_index(caplog: pytest.LogCaptureFixture) -> None:
    async def test(index: SqliteRunIndex) -> None:
        old = MemorySnapshots()
        for number in range(5):
            await old.write(f"old{number}", body(), position=1)
        await IndexUpdater(MemorySnapshotFeed(old), index, lambda _: None).catch_up()
        new = MemorySnapshots()
        for number in range(9):  # more than before: the position alone would not show the difference
            await new.write(f"new{number}", body(), position=1)
        await IndexUpdater(MemorySnapshotFeed(new), index, lambda _: None).catch_up()
        assert await ids(index) == [f"new{number}" for number in range(9)]
        assert await index.counts() == {"RUNNING": 9}

    with caplog.at_level(logging.INFO):
        with_index(test)
    assert [getattr(record, "action", "") for record in caplog.records] == ["run_index_rebuilt"]


def test_an_updater_continues_where_another_stopped() -> None:
    async def test(index: SqliteRunIndex) -> None:
        snapshots, seen = MemorySnapshots(), list[str]()
        await snapshots.write("a", body(), position=1)
        await IndexUpdater(MemorySnapshotFeed(snapshots), index, lambda _: None).catch_up()
        await snapshots.write("b", body(), position=1)
        await IndexUpdater(MemorySnapshotFeed(snapshots), index, lambda change: seen.append(change.run_id)).catch_up()
        assert seen == ["b"]
        assert await ids(index) == ["a", "b"]

    with_index(test)

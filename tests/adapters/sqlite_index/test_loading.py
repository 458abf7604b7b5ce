"""A load of an empty index: it drops the indexes that only readers need, and readers do not notice."""

import asyncio
import contextlib
import json
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.adapters.sqlite_index.writer import MANY
from pyoco_server.app.ports import RunFilter, RunQuery, SnapshotChange, UnavailableError
from pyoco_server.app.ports.run_index import FEED_BYTES, size_of
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from tests.adapters.sqlite_index.snapshots import change, random_change, snapshot

RUNS = 2 * MANY
"""A random change hits one of so many runs: large batches of them have more than enough different ones."""

ALL = {
    "runs": """SELECT run_id, sequence, submitted_at, updated_at, span, alive_at, summary,
        t.text, f.text, s.text, g.text, y.text FROM runs
        LEFT JOIN terms t ON t.id = tenant LEFT JOIN terms f ON f.id = flow
        LEFT JOIN terms s ON s.id = status LEFT JOIN terms g ON g.id = tag LEFT JOIN terms y ON y.id = yaml""",
    "waits": "SELECT run_id, node_id, deadline FROM waits JOIN runs ON key = run",
    "cells": """SELECT t.text, f.text, s.text, g.text, runs FROM cells LEFT JOIN terms t ON t.id = tenant
        LEFT JOIN terms f ON f.id = flow LEFT JOIN terms s ON s.id = status LEFT JOIN terms g ON g.id = tag
        WHERE runs > 0""",
    "days": "SELECT text, day, runs FROM days LEFT JOIN terms ON id = tenant WHERE runs > 0",
    "latencies": "SELECT text, kind, class, runs, round(seconds, 3) FROM latencies LEFT JOIN terms ON id = tenant",
    "feed": "SELECT * FROM feed",
    "layout": "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'",
    "version": "PRAGMA user_version",
}


def content(path: Path) -> dict[str, list[Any]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {name: sorted(map(repr, connection.execute(sql))) for name, sql in ALL.items()}


def batches(*sizes: int) -> list[list[SnapshotChange]]:
    found, at = [], 1
    for size in sizes:
        found.append([random_change(number, runs=RUNS, seed=7) for number in range(at, at + size)])
        at += size
    return found


def is_loading(index: SqliteRunIndex) -> bool:
    return index._writer.is_loading


async def apply(index: SqliteRunIndex, changes: Sequence[SnapshotChange]) -> None:
    await index.apply(changes, changes[-1].sequence)


def test_a_loaded_index_is_the_same_as_one_that_was_kept_up_to_date(tmp_path: Path) -> None:
    """Runs that change between two batches, that are gone again, that wait and that end are among the random ones."""

    async def fill(path: Path, given: Sequence[Sequence[SnapshotChange]]) -> list[bool]:
        async with SqliteRunIndex(path) as index:
            loading = []
            for part in given:
                await apply(index, part)
                loading.append(is_loading(index))
            await index.counts()
            return loading

    given = batches(3 * MANY, 3 * MANY, 3 * MANY, 10, 3 * MANY)
    plain = [part[at : at + 100] for part in given for at in range(0, len(part), 100)]
    assert asyncio.run(fill(tmp_path / "loaded.db", given)) == [True, True, True, False, False]
    assert not any(asyncio.run(fill(tmp_path / "plain.db", plain)))
    loaded, kept = content(tmp_path / "loaded.db"), content(tmp_path / "plain.db")
    # Ends of which a newer change came in the same batch are counted once in either; which one was seen may differ.
    assert {**loaded, "latencies": []} == {**kept, "latencies": []}
    assert loaded["runs"]
    assert loaded["waits"]


@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_query_during_a_load_is_answered_from_a_complete_index(tmp_path: Path, place: str) -> None:
    async def body() -> None:
        async with SqliteRunIndex(tmp_path / "index.db" if place == "file" else ":memory:") as index:
            first = [change(f"r{n:05}", n, tenant_id="a") for n in range(1, MANY + 1)]
            await apply(index, first)
            assert is_loading(index)
            assert await index.position() == MANY
            assert is_loading(index), "to know how far it is needs nothing that was left out"
            asked = await asyncio.gather(
                index.page(RunQuery(limit=3)), index.tally(RunFilter(tenant_id="a")), index.silent(1e9, 5)
            )
            assert [run.cursor.run_id for run in asked[0]] == [f"r{n:05}" for n in range(MANY, MANY - 3, -1)]
            assert asked[1].counts == {"RUNNING": MANY}
            assert len(asked[2]) == 5
            await apply(index, [change(f"s{n:05}", MANY + n, submitted_at=1.0) for n in range(1, MANY + 1)])
            assert not is_loading(index)
            assert await index.counts() == {"RUNNING": 2 * MANY}

    asyncio.run(body())


def test_a_reader_that_waited_when_a_load_began_reads_the_current_state(tmp_path: Path) -> None:
    async def body() -> None:
        async with SqliteRunIndex(tmp_path / "index.db") as index:
            many = [change(f"r{n:05}", n) for n in range(1, MANY + 1)]
            filling = asyncio.create_task(apply(index, many))
            while not filling.done():
                assert len(await index.page(RunQuery(limit=5))) in (0, 5)
            await filling
            assert len(await index.page(RunQuery(limit=5))) == 5

    asyncio.run(body())


def test_a_file_left_by_an_interrupted_load_is_loaded_further(tmp_path: Path) -> None:
    """Otherwise a supervisor that restarts a slow gateway would never get a loaded one."""

    async def body() -> None:
        many = [change(f"r{n:05}", n) for n in range(1, 3 * MANY + 1)]
        for begin in (0, MANY):
            async with SqliteRunIndex(tmp_path / "index.db") as index:
                assert await index.position() == begin
                await apply(index, many[begin : begin + MANY])
                assert is_loading(index)
        async with SqliteRunIndex(tmp_path / "index.db") as index:
            assert (await index.position(), is_loading(index)) == (2 * MANY, True)
            assert await index.counts() == {"RUNNING": 2 * MANY}
            assert not is_loading(index)
            await apply(index, many[2 * MANY :])
        async with SqliteRunIndex(tmp_path / "one.db") as index:
            await apply(index, many)
            await index.forget(0)
        assert content(tmp_path / "index.db") == content(tmp_path / "one.db")

    asyncio.run(body())


def test_a_disk_that_fails_during_a_load_leaves_a_consistent_index(tmp_path: Path) -> None:
    async def body() -> None:
        async with SqliteRunIndex(tmp_path / "index.db") as index:
            many = [change(f"r{n:05}", n) for n in range(1, MANY + 1)]
            writer = index._connections[0]
            [pages] = writer.execute("PRAGMA page_count").fetchone()
            writer.execute(f"PRAGMA max_page_count = {pages + 10}")  # the disk is full
            with pytest.raises(UnavailableError, match="full"):
                await apply(index, many)
            assert (await index.page(RunQuery()), await index.position()) == ([], 0)
            writer.execute("PRAGMA max_page_count = 1000000")
            await apply(index, many)
            assert len(await index.page(RunQuery(limit=5))) == 5

    asyncio.run(body())


class _BusyFeed(MemorySnapshotFeed):
    """While it is read, runs that were read before go on."""

    def __init__(self, snapshots: MemorySnapshots) -> None:
        super().__init__(snapshots)
        self._written = snapshots
        self.left = 40

    @override
    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        if after and self.left:
            self.left -= 1
            body = json.dumps(snapshot(status="COMPLETED", version=self.left)).encode()
            await self._written.write(f"r{self.left:05}", body, position=2)
        return await super().read(after=after, limit=limit)


def test_changes_during_a_catch_up_are_in_the_index_at_its_end() -> None:
    async def body() -> None:
        snapshots, sequences, runs = MemorySnapshots(), dict[str, int](), 6 * MANY
        for number in range(runs):
            await snapshots.write(f"r{number:05}", json.dumps(snapshot()).encode(), position=1)
        feed = _BusyFeed(snapshots)

        def on_change(changed: SnapshotChange) -> None:
            assert changed.sequence > sequences.get(changed.run_id, 0)
            sequences[changed.run_id] = changed.sequence

        async with SqliteRunIndex() as index:
            keeper = IndexUpdater(feed, index, on_change)
            await keeper.catch_up()
            written = 40 - feed.left
            assert written > 20, "the feed was read in pages"
            await keeper.catch_up()
            assert await index.counts() == {"RUNNING": runs - 40 + feed.left, "COMPLETED": 40 - feed.left}
            assert len(sequences) == runs

    asyncio.run(body())


def test_large_snapshots_are_loaded_in_small_batches() -> None:
    sizes: list[int] = []

    class Weighed(MemorySnapshotFeed):
        @override
        async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
            changes, position = await super().read(after=after, limit=limit)
            sizes.append(size_of(changes))
            return changes, position

    async def body() -> None:
        snapshots, large = MemorySnapshots(), json.dumps(snapshot(filler="x" * 262_144)).encode()
        for number in range(100):
            await snapshots.write(f"r{number:05}", large, position=1)
        async with SqliteRunIndex() as index:
            keeper = IndexUpdater(Weighed(snapshots), index, lambda _: None)
            await keeper.catch_up()
            assert await index.counts() == {"RUNNING": 100}
            assert keeper.is_current
        assert max(sizes) < FEED_BYTES + len(large)

    asyncio.run(body())


def test_a_failure_to_read_ahead_is_raised_and_loses_nothing() -> None:
    class Failing(MemorySnapshotFeed):
        fails_at = 5 * MANY

        @override
        async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
            if after >= self.fails_at:
                raise UnavailableError("gone")
            return await super().read(after=after, limit=limit)

    async def body() -> None:
        snapshots = MemorySnapshots()
        for number in range(6 * MANY):
            await snapshots.write(f"r{number:05}", json.dumps(snapshot()).encode(), position=1)
        feed = Failing(snapshots)
        async with SqliteRunIndex() as index:
            keeper = IndexUpdater(feed, index, lambda _: None)
            with pytest.raises(UnavailableError, match="gone"):
                await keeper.catch_up()
            assert keeper.lag_sec == math.inf
            feed.fails_at = 10 * MANY
            await keeper.catch_up()
            assert keeper.is_current
            assert await index.counts() == {"RUNNING": 6 * MANY}

    asyncio.run(body())

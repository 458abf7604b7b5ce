"""The contract of the snapshot feed: a reader that continues from its last position misses no change."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.snapshot_feed import JetStreamSnapshotFeed
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.app.ports import SnapshotChange, SnapshotFeed, Snapshots
from pyoco_server.app.ports.run_index import FEED_BYTES, has_enough, size_of
from tests.adapters.conftest import Backend

R = TypeVar("R")


class Place(NamedTuple):
    snapshots: Snapshots
    feed: SnapshotFeed


def attempt(backend: Backend, body: Callable[[Snapshots, SnapshotFeed], Awaitable[R]]) -> R:
    """Run ``body`` with a writer and a reader that have separate connections."""

    def in_memory() -> Place:
        snapshots = MemorySnapshots()
        return Place(snapshots, MemorySnapshotFeed(snapshots))

    def on_jetstream(connection: Connection, names: Names) -> Place:
        return Place(JetStreamSnapshots(connection, names), JetStreamSnapshotFeed(connection, names))

    async def with_two(open_place: Callable[[], Awaitable[Place]]) -> R:
        return await body((await open_place()).snapshots, (await open_place()).feed)

    return backend.run(in_memory, on_jetstream, with_two)


def at(position: int) -> bytes:
    return json.dumps({"log_position": position}).encode()


async def write(snapshots: Snapshots, run_id: str, position: int) -> int:
    sequence = await snapshots.write(run_id, at(position), position=position)
    assert sequence is not None
    return sequence


def test_feed_without_snapshots_is_empty(backend: Backend) -> None:
    async def body(_snapshots: Snapshots, feed: SnapshotFeed) -> None:
        assert await feed.read(after=0) == ([], 0)
        assert (await feed.state()).last == 0

    attempt(backend, body)


def test_read_returns_changes_in_order_with_their_bodies(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        first = await write(snapshots, "a", 1)
        second = await write(snapshots, "b", 1)
        expected = [SnapshotChange("a", at(1), first), SnapshotChange("b", at(1), second)]
        assert await feed.read(after=0) == (expected, second)
        assert await feed.read(after=first) == (expected[1:], second)
        assert await feed.read(after=second) == ([], second)
        third = await write(snapshots, "a", 2)
        assert await feed.read(after=second) == ([SnapshotChange("a", at(2), third)], third)

    attempt(backend, body)


def test_read_includes_the_newest_change_of_every_run(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        last = 0
        for position in range(1, 6):
            await write(snapshots, "a", position)
            last = await write(snapshots, "b", position)
        changes, position = await feed.read(after=0)
        assert {change.run_id: change.body for change in changes} == {"a": at(5), "b": at(5)}
        assert position == last == changes[-1].sequence
        assert [change.sequence for change in changes] == sorted(change.sequence for change in changes)

    attempt(backend, body)


def test_removed_snapshot_is_a_change(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        written = await write(snapshots, "a", 1)
        await snapshots.delete("a")
        [change], position = await feed.read(after=written)
        assert (change.run_id, change.body) == ("a", None)
        assert position == change.sequence > written
        again = await write(snapshots, "a", 1)
        assert await feed.read(after=position) == ([SnapshotChange("a", at(1), again)], again)

    attempt(backend, body)


def test_read_returns_at_most_the_limit_of_changes(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        for number in range(25):
            await write(snapshots, f"r{number}", 1)
        seen: list[str] = []
        position = 0
        for size in (10, 10, 5, 0):
            changes, position = await feed.read(after=position, limit=10)
            assert len(changes) == size
            seen += [change.run_id for change in changes]
        assert seen == [f"r{number}" for number in range(25)]

    attempt(backend, body)


def test_read_of_large_snapshots_is_bounded_in_bytes(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        large = json.dumps({"log_position": 1, "filler": "x" * 900_000}).encode()
        for number in range(25):
            await snapshots.write(f"r{number}", large, position=1)
        seen: list[str] = []
        position, has_more = 0, True
        while has_more:
            changes, position = await feed.read(after=position, limit=500)
            assert size_of(changes) < 2 * FEED_BYTES + len(large)
            assert all(change.body == large for change in changes)
            seen += [change.run_id for change in changes]
            has_more = has_enough(changes, 500)
        assert seen == [f"r{number}" for number in range(25)]

    attempt(backend, body)


def test_read_after_an_unknown_position_starts_at_the_beginning(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        assert await feed.read(after=1000) == ([], 0)
        first = await write(snapshots, "a", 1)
        assert await feed.read(after=1000) == ([SnapshotChange("a", at(1), first)], first)

    attempt(backend, body)


def test_state_has_the_first_and_last_sequence(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        before = await feed.state()
        first = await write(snapshots, "a", 1)
        last = await write(snapshots, "b", 1)
        assert await feed.state() == (before.origin, first, last)
        again = await write(snapshots, "a", 2)
        assert await feed.state() == (before.origin, last, again)

    attempt(backend, body)


def test_wait_returns_when_a_snapshot_changes(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        _, position = await feed.read(after=0)
        for change in ("written", "removed"):
            waiting = asyncio.create_task(feed.wait(60))
            await asyncio.sleep(0)
            await (write(snapshots, "a", 1) if change == "written" else snapshots.delete("a"))
            await asyncio.wait_for(waiting, 5)
            [found], position = await feed.read(after=position)
            assert (found.run_id, found.body) == ("a", at(1) if change == "written" else None)

    attempt(backend, body)


def test_wait_returns_at_once_if_a_change_came_after_the_last_read(backend: Backend) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        await feed.read(after=0)
        await write(snapshots, "a", 1)
        await asyncio.wait_for(feed.wait(60), 5)

    attempt(backend, body)


@pytest.mark.parametrize("steps", range(6))
def test_wait_can_be_cancelled_while_a_change_arrives(backend: Backend, steps: int) -> None:
    async def body(snapshots: Snapshots, feed: SnapshotFeed) -> None:
        await feed.read(after=0)
        waiting = asyncio.create_task(_wait_forever(feed))
        await asyncio.sleep(0)
        await write(snapshots, "a", 1)
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        done, _ = await asyncio.wait({waiting}, timeout=30)
        assert done == {waiting}

    attempt(backend, body)


async def _wait_forever(feed: SnapshotFeed) -> None:
    while True:
        await feed.wait(60)


def test_wait_ends_after_its_timeout(backend: Backend) -> None:
    async def body(_snapshots: Snapshots, feed: SnapshotFeed) -> None:
        await feed.read(after=0)
        began = time.monotonic()
        await feed.wait(0.05)
        assert time.monotonic() - began > 0.04

    attempt(backend, body)

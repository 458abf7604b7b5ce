"""The snapshot feed and the run index when the server dies, and when other programs change the bucket."""

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from nats.js.api import RePublish, StreamConfig

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.snapshot_feed import (
    MOST_ANNOUNCED,
    MOST_BYTES_ANNOUNCED,
    JetStreamSnapshotFeed,
    _AnnouncedChanges,
)
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import RunQuery, SnapshotChange, UnavailableError
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from tests.adapters.conftest import JetStream
from tests.adapters.real_nats import NatsServer
from tests.waiting import PATIENCE_SEC, wait_until


def body(position: int = 1) -> bytes:
    return json.dumps({"status": "RUNNING", "updated_at": 1.0, "log_position": position}).encode()


async def fill(connection: Connection, names: Names, run_ids: list[str]) -> None:
    """Write many snapshots at once."""
    for start in range(0, len(run_ids), 500):
        keys = [kv_subject(names.runs_bucket, run_id) for run_id in run_ids[start : start + 500]]
        await asyncio.gather(*(connection.js.publish(key, body()) for key in keys))


async def ids(index: SqliteRunIndex) -> set[str]:
    return {run.cursor.run_id for run in await index.page(RunQuery(limit=20_000))}


class UpdatedIndex:
    """An index with its updater, and the changes that the updater reported."""

    def __init__(self, connection: Connection, names: Names, index: SqliteRunIndex) -> None:
        self.index = index
        self.changes: list[SnapshotChange] = []
        self.feed = JetStreamSnapshotFeed(connection, names)
        self.updater = IndexUpdater(self.feed, index, self.changes.append, poll_sec=0.2)

    def has_change(self, run_id: str) -> bool:
        return any(change.run_id == run_id for change in self.changes)


@asynccontextmanager
async def updated_index(connection: Connection, names: Names) -> AsyncIterator[UpdatedIndex]:
    async with SqliteRunIndex() as index:
        made = UpdatedIndex(connection, names, index)
        running = asyncio.create_task(made.updater.run())
        try:
            yield made
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def recreate(connection: Connection, names: Names) -> None:
    await connection.js.delete_stream(kv_stream(names.runs_bucket))
    await provision(connection, names)


def test_index_is_current_again_after_a_restart_of_the_server(
    own_nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def attempt() -> float:
        names = Names()
        async with (
            await connect(own_nats_server.url, name="test", request_timeout_sec=0.5) as connection,
            await connect(own_nats_server.url, name="writer") as writer,
        ):
            await provision(connection, names)
            async with updated_index(connection, names) as made:
                await fill(connection, names, ["before"])
                await wait_until(lambda: made.has_change("before"))
                own_nats_server.kill()
                await wait_until(lambda: not made.updater.is_current)
                await wait_until(lambda: made.updater.lag_sec > 1.0)
                await asyncio.to_thread(own_nats_server.start)
                await wait_until(lambda: writer.is_connected)
                await write_patiently(writer, names, "after")
                began = time.monotonic()
                await wait_until(lambda: made.has_change("after"))
                took = time.monotonic() - began
                await wait_until(lambda: made.updater.is_current and made.updater.lag_sec < 1.0)
                assert await ids(made.index) == {"before", "after"}
                return took

    with caplog.at_level(logging.INFO, logger="pyoco_server.app.snapshots.index_updater"):
        assert asyncio.run(attempt()) < 30.0
    actions = [getattr(record, "action", "") for record in caplog.records if "index_updater" in record.name]
    assert actions == ["run_index_behind", "run_index_current"]


async def write_patiently(connection: Connection, names: Names, run_id: str) -> None:
    """Write, and retry for a while: streams become available a moment after their server."""
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        try:
            await JetStreamSnapshots(connection, names).write(run_id, body(), position=1)
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)
        else:
            return


@pytest.mark.parametrize("fewer", [True, False], ids=["fewer", "more"])
def test_recreated_bucket_is_read_from_its_beginning(jetstream: JetStream, fewer: bool) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            await fill(connection, names, [f"old{number}" for number in range(20)])
            await UpdatedIndex(connection, names, index).updater.catch_up()
            await recreate(connection, names)
            new = [f"new{number}" for number in range(3 if fewer else 30)]
            await fill(connection, names, new)
            await UpdatedIndex(connection, names, index).updater.catch_up()
            assert await ids(index) == set(new)
            assert await index.counts() == {"RUNNING": len(new)}

    jetstream.run(attempt)


def test_running_updater_notices_a_recreated_bucket(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with updated_index(connection, names) as made:
            await fill(connection, names, [f"old{number}" for number in range(20)])
            await wait_until(lambda: made.has_change("old19"))
            await recreate(connection, names)
            await fill(connection, names, ["new"])
            await wait_until(lambda: made.has_change("new"))
            assert await ids(made.index) == {"new"}

    jetstream.run(attempt)


def test_runs_of_purged_snapshots_are_dropped_from_the_index(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            await fill(connection, names, ["a", "b", "c"])
            await UpdatedIndex(connection, names, index).updater.catch_up()
            await connection.js.purge_stream(kv_stream(names.runs_bucket), seq=3)
            await fill(connection, names, ["d"])
            await UpdatedIndex(connection, names, index).updater.catch_up()
            assert await ids(index) == {"c", "d"}
            assert await index.counts() == {"RUNNING": 2}

    jetstream.run(attempt)


def test_run_whose_newest_change_is_not_announced_yet_is_not_dropped(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            made = UpdatedIndex(connection, names, index)
            await fill(connection, names, ["a", "b"])
            await made.updater.catch_up()
            await fill(connection, names, ["c", "b", "a"])
            await announced_up_to(made.feed, 5)
            announced_late = made.feed._announced_changes._changes.pop()
            made.updater._checked_at = -math.inf
            await made.updater.catch_up()
            assert (announced_late.run_id, (await made.feed.state()).first) == ("a", 3)
            assert await ids(index) == {"a", "b", "c"}

    jetstream.run(attempt)


def test_changes_announced_by_a_deleted_bucket_are_not_applied_to_the_new_one(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            made = UpdatedIndex(connection, names, index)
            await made.updater.catch_up()
            await fill(connection, names, ["old"])
            await announced_up_to(made.feed, 1)
            await made.updater.catch_up()
            await recreate(connection, names)
            made.updater._checked_at = -math.inf
            await made.updater.catch_up()
            assert await ids(index) == set()

    jetstream.run(attempt)


def test_announcements_of_lost_changes_are_not_read(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed = JetStreamSnapshotFeed(connection, names)
        await fill(connection, names, ["a", "b"])
        await feed.read(after=0)
        feed._announced_changes.take("lost", body(), b"NATS/1.0\r\nNats-Sequence: 5\r\n\r\n")
        for lost_position in (3, 4):
            changes, position = await feed.read(after=lost_position)
            assert ([change.run_id for change in changes], position) == (["a", "b"], 2)

    jetstream.run(attempt)


def test_feed_without_its_bucket_is_unavailable(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        await connection.js.delete_stream(kv_stream(names.runs_bucket))
        feed = JetStreamSnapshotFeed(connection, names)
        with pytest.raises(UnavailableError):
            await feed.read(after=0)
        with pytest.raises(UnavailableError, match=kv_stream(names.runs_bucket)):
            await feed.state()

    jetstream.run(attempt)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "no direct access"])
def test_bucket_without_announcements_is_read(jetstream: JetStream, direct: bool) -> None:
    async def attempt() -> None:
        names = jetstream.names
        async with await connect(jetstream.server.url, name="test") as connection:
            await connection.js.add_stream(
                StreamConfig(
                    name=kv_stream(names.runs_bucket),
                    subjects=[kv_subject(names.runs_bucket, ">")],
                    max_msgs_per_subject=1,
                    allow_rollup_hdrs=True,
                    allow_direct=direct,
                )
            )
            await provision(connection, names)
            async with updated_index(connection, names) as made:
                await wait_until(lambda: made.updater.is_current)
                await fill(connection, names, ["a", "b"])
                await wait_until(lambda: made.has_change("a") and made.has_change("b"))
                await JetStreamSnapshots(connection, names).delete("a")
                await wait_until(lambda: made.changes[-1].body is None)
                assert await ids(made.index) == {"b"}

    asyncio.run(attempt())


def test_feed_reports_keys_removed_by_key_value_clients(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        bucket = await connection.js.key_value(names.runs_bucket)
        for key in ("deleted", "purged", "kept"):
            await bucket.put(key, body())
        await bucket.delete("deleted")
        await bucket.purge("purged")
        changes, _ = await JetStreamSnapshotFeed(connection, names).read(after=0)
        assert {change.run_id: change.body for change in changes} == {"deleted": None, "purged": None, "kept": body()}

    jetstream.run(attempt)


def test_updater_reads_ten_thousand_snapshots_in_seconds(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> float:
        run_ids = [f"run{number}" for number in range(10_000)]
        await fill(connection, names, run_ids)
        async with SqliteRunIndex() as index:
            made = UpdatedIndex(connection, names, index)
            began = time.monotonic()
            await made.updater.catch_up()
            took = time.monotonic() - began
            assert await index.counts() == {"RUNNING": 10_000}
            assert await ids(index) == set(run_ids)
            return took

    assert jetstream.run(attempt) < 60.0


@asynccontextmanager
async def read_requests(connection: Connection, names: Names) -> AsyncIterator[list[bytes]]:
    """Yield a list that receives the direct reads of the stream of snapshots."""
    requests: list[bytes] = []
    stream = kv_stream(names.runs_bucket)
    listening = await connection.nc.subscribe_inline(
        f"$JS.API.DIRECT.GET.{stream}", lambda _, data, *__: requests.append(data)
    )
    await connection.nc.flush()
    yield requests
    await connection.nc.unsubscribe_inline(listening)


async def announced_up_to(feed: JetStreamSnapshotFeed, sequence: int) -> None:
    """Wait until the newest announced change of the feed has this sequence."""
    await wait_until(
        lambda: bool(feed._announced_changes._changes) and feed._announced_changes._changes[-1].sequence == sequence
    )


def test_announced_changes_are_read_without_requests(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed, snapshots = JetStreamSnapshotFeed(connection, names), JetStreamSnapshots(connection, names)
        await fill(connection, names, ["first"])
        _, position = await feed.read(after=0)
        async with read_requests(connection, names) as requests:
            await fill(connection, names, ["a", "b", "gone"])
            again = await snapshots.write("a", body(2), position=2, revision=2)
            await connection.js.publish(kv_subject(names.runs_bucket, "gone"), headers={"KV-Operation": "PURGE"})
            await announced_up_to(feed, 6)
            changes, position = await feed.read(after=position)
            assert not requests
        expected = {"b": (body(), 3), "a": (body(2), again), "gone": (None, 6)}
        assert {change.run_id: (change.body, change.sequence) for change in changes} == expected
        assert [change.sequence for change in changes] == [3, 5, 6]
        assert (position, await feed.read(after=position)) == (6, ([], 6))

    jetstream.run(attempt)


def test_announced_changes_are_read_in_parts(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed = JetStreamSnapshotFeed(connection, names)
        await fill(connection, names, ["first"])
        _, position = await feed.read(after=0)
        await fill(connection, names, [f"r{number}" for number in range(5)])
        await announced_up_to(feed, 6)
        sizes = []
        while changes := (await feed.read(after=position, limit=2))[0]:
            sizes.append(len(changes))
            position = changes[-1].sequence
        assert (sizes, position) == ([2, 2, 1], 6)

    jetstream.run(attempt)


def test_feed_that_missed_an_announcement_reads_the_changes_from_the_stream(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed = JetStreamSnapshotFeed(connection, names)
        await fill(connection, names, ["first"])
        _, position = await feed.read(after=0)
        await fill(connection, names, ["a", "b", "c"])
        await announced_up_to(feed, 4)
        feed._announced_changes._changes.popleft()
        changes, position = await feed.read(after=position)
        assert [change.run_id for change in changes] == ["a", "b", "c"]
        assert position == 4

    jetstream.run(attempt)


@pytest.mark.parametrize("sequences", [[1, 3], [7, 1]], ids=["one is missing", "recreated"])
def test_announcements_before_a_gap_are_dropped(sequences: list[int]) -> None:
    announced_changes = _AnnouncedChanges()
    for sequence in sequences:
        announced_changes.take("r", body(), b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence)
    first, last = sequences
    assert announced_changes.behind(first - 1, 500) == []
    assert [change.sequence for change in announced_changes.behind(last - 1, 500)] == ([last] if last > first else [])


def test_announced_changes_are_bounded_in_number_and_bytes() -> None:
    announced_changes = _AnnouncedChanges()
    for sequence in range(1, MOST_ANNOUNCED + 2):
        announced_changes.take(f"r{sequence}", b"", b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence)
    assert len(announced_changes._changes) == 1
    large = bytes(MOST_BYTES_ANNOUNCED // 2)
    for sequence in range(5):
        announced_changes.take(f"r{sequence}", large, b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % (5_000 + sequence))
    assert sum(len(change.body or b"") for change in announced_changes._changes) <= 2 * MOST_BYTES_ANNOUNCED


@pytest.mark.parametrize("mark", ["KV-Operation: DEL", "KV-Operation: PURGE", "Nats-Marker-Reason: MaxAge"])
def test_announced_marker_is_a_removal(mark: str) -> None:
    announced_changes = _AnnouncedChanges()
    announced_changes.take("r", b"", f"NATS/1.0\r\n{mark}\r\nNats-Sequence: 1\r\n\r\n".encode())
    assert announced_changes.behind(0, 500) == [SnapshotChange("r", None, 1)]


@pytest.mark.parametrize("step", [1, 2], ids=["read", "dropped at a gap"])
def test_dropped_announcements_do_not_count_toward_the_limit(step: int) -> None:
    announced_changes, large = _AnnouncedChanges(), bytes(MOST_BYTES_ANNOUNCED // 4)
    for sequence in range(1, 20 * step, step):
        announced_changes.take("r", large, b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence)
        assert len(announced_changes.behind(sequence - 1, 500)) == 1
    newest = [sequence + 1, sequence + 2]
    for number in newest:
        announced_changes.take(f"r{number}", large, b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % number)
    assert [change.sequence for change in announced_changes.behind(sequence, 500)] == newest


def test_bucket_that_announces_headers_only_is_read_for_the_bodies(jetstream: JetStream) -> None:
    """Earlier versions created such buckets."""

    async def attempt() -> None:
        names = jetstream.names
        async with await connect(jetstream.server.url, name="test") as connection:
            keys = kv_subject(names.runs_bucket, ">")
            republish = RePublish(src=keys, dest=f"{names.live_snapshots_prefix}.>", headers_only=True)
            await connection.js.add_stream(
                StreamConfig(
                    name=kv_stream(names.runs_bucket),
                    subjects=[keys],
                    max_msgs_per_subject=1,
                    allow_rollup_hdrs=True,
                    allow_direct=True,
                    republish=republish,
                )
            )
            await provision(connection, names)
            async with SqliteRunIndex() as index:
                made, announced = UpdatedIndex(connection, names, index), list[str]()
                made.feed.listen(lambda run_id, body: announced.append(run_id) if body is None else None)
                await fill(connection, names, ["first"])
                await made.updater.catch_up()
                await fill(connection, names, ["a", "b"])
                await wait_until(lambda: announced[-2:] == ["a", "b"])
                await made.updater.catch_up()
                assert [(change.run_id, change.body) for change in made.changes[1:]] == [("a", body()), ("b", body())]
                assert await ids(index) == {"first", "a", "b"}

    asyncio.run(attempt())

"""The feed and the index behind it, when the server dies, and when other hands were at the bucket."""

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from nats.js.api import RePublish, StreamConfig

from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.snapshot_feed import (
    MOST_BYTES_HEARD,
    MOST_HEARD,
    JetStreamSnapshotFeed,
    _Heard,
)
from pyoco_server.adapters.jetstream.snapshots import JetStreamSnapshots
from pyoco_server.adapters.readmodel import SqliteRunIndex
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.ports import RunQuery, SnapshotChange, UnavailableError
from tests.adapters.conftest import JetStream
from tests.adapters.nats_server import NatsServer
from tests.waiting import wait_until


def body(position: int = 1) -> bytes:
    return json.dumps({"status": "RUNNING", "updated_at": 1.0, "log_position": position}).encode()


async def fill(connection: Connection, names: Names, run_ids: list[str]) -> None:
    """Write many snapshots at once."""
    for start in range(0, len(run_ids), 500):
        keys = [kv_subject(names.runs_bucket, run_id) for run_id in run_ids[start : start + 500]]
        await asyncio.gather(*(connection.js.publish(key, body()) for key in keys))


async def ids(index: SqliteRunIndex) -> set[str]:
    return {run.cursor.run_id for run in await index.page(RunQuery(limit=20_000))}


class Kept:
    """An index that a keeper keeps up to date, and what was told of it."""

    def __init__(self, connection: Connection, names: Names, index: SqliteRunIndex) -> None:
        self.index = index
        self.told: list[SnapshotChange] = []
        self.feed = JetStreamSnapshotFeed(connection, names)
        self.keeper = IndexKeeper(self.feed, index, self.told.append, poll_sec=0.2)

    def has_told(self, run_id: str) -> bool:
        return any(change.run_id == run_id for change in self.told)


@asynccontextmanager
async def kept(connection: Connection, names: Names) -> AsyncIterator[Kept]:
    async with SqliteRunIndex() as index:
        made = Kept(connection, names, index)
        running = asyncio.create_task(made.keeper.run())
        try:
            yield made
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def recreate(connection: Connection, names: Names) -> None:
    await connection.js.delete_stream(kv_stream(names.runs_bucket))
    await provision(connection, names)


def test_the_index_follows_again_after_the_server_was_killed(
    own_nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def attempt() -> float:
        names = Names()
        async with (
            await connect(own_nats_server.url, name="test", request_timeout_sec=0.5) as connection,
            await connect(own_nats_server.url, name="writer") as writer,
        ):
            await provision(connection, names)
            async with kept(connection, names) as made:
                await fill(connection, names, ["before"])
                await wait_until(lambda: made.has_told("before"))
                own_nats_server.kill()
                await wait_until(lambda: not made.keeper.is_current)
                await wait_until(lambda: made.keeper.lag_sec > 1.0)
                await asyncio.to_thread(own_nats_server.start)
                await wait_until(lambda: writer.is_connected)
                await write_patiently(writer, names, "after")
                began = time.monotonic()
                await wait_until(lambda: made.has_told("after"))
                took = time.monotonic() - began
                await wait_until(lambda: made.keeper.is_current)
                assert made.keeper.lag_sec < 1.0
                assert await ids(made.index) == {"before", "after"}
                return took

    with caplog.at_level(logging.INFO, logger="pyoco_server.app.index_keeper"):
        assert asyncio.run(attempt()) < 3.0
    actions = [getattr(record, "action", "") for record in caplog.records if "index_keeper" in record.name]
    assert actions == ["run_index_behind", "run_index_current"]


async def write_patiently(connection: Connection, names: Names, run_id: str) -> None:
    """Streams are there a moment after their server."""
    deadline = time.monotonic() + 5
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
def test_a_bucket_that_was_deleted_and_made_again_is_read_from_its_beginning(jetstream: JetStream, fewer: bool) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            await fill(connection, names, [f"old{number}" for number in range(20)])
            await Kept(connection, names, index).keeper.catch_up()
            await recreate(connection, names)
            new = [f"new{number}" for number in range(3 if fewer else 30)]
            await fill(connection, names, new)
            await Kept(connection, names, index).keeper.catch_up()
            assert await ids(index) == set(new)
            assert await index.counts() == {"RUNNING": len(new)}

    jetstream.run(attempt)


def test_a_keeper_at_work_notices_that_the_bucket_was_made_again(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with kept(connection, names) as made:
            await fill(connection, names, [f"old{number}" for number in range(20)])
            await wait_until(lambda: made.has_told("old19"))
            await recreate(connection, names)
            await fill(connection, names, ["new"])
            await wait_until(lambda: made.has_told("new"))
            assert await ids(made.index) == {"new"}

    jetstream.run(attempt)


def test_runs_whose_snapshots_vanished_without_a_trace_are_dropped(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            await fill(connection, names, ["a", "b", "c"])
            await Kept(connection, names, index).keeper.catch_up()
            await connection.js.purge_stream(kv_stream(names.runs_bucket), seq=3)
            await fill(connection, names, ["d"])
            await Kept(connection, names, index).keeper.catch_up()
            assert await ids(index) == {"c", "d"}
            assert await index.counts() == {"RUNNING": 2}

    jetstream.run(attempt)


def test_a_run_whose_newest_change_is_still_to_be_heard_of_is_not_dropped(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            made = Kept(connection, names, index)
            await fill(connection, names, ["a", "b"])
            await made.keeper.catch_up()
            await fill(connection, names, ["c", "b", "a"])
            await heard(made.feed, 5)
            announced_late = made.feed._heard._changes.pop()
            made.keeper._checked_at = -math.inf
            await made.keeper.catch_up()
            assert (announced_late.run_id, (await made.feed.state()).first) == ("a", 3)
            assert await ids(index) == {"a", "b", "c"}

    jetstream.run(attempt)


def test_what_was_heard_of_a_bucket_says_nothing_of_the_one_made_in_its_place(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        async with SqliteRunIndex() as index:
            made = Kept(connection, names, index)
            await made.keeper.catch_up()
            await fill(connection, names, ["old"])
            await heard(made.feed, 1)
            await made.keeper.catch_up()
            await recreate(connection, names)
            made.keeper._checked_at = -math.inf
            await made.keeper.catch_up()
            assert await ids(index) == set()

    jetstream.run(attempt)


def test_what_was_heard_of_changes_that_were_lost_is_not_read(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed = JetStreamSnapshotFeed(connection, names)
        await fill(connection, names, ["a", "b"])
        await feed.read(after=0)
        feed._heard.take("lost", body(), b"NATS/1.0\r\nNats-Sequence: 5\r\n\r\n")
        for lost_position in (3, 4):
            changes, position = await feed.read(after=lost_position)
            assert ([change.run_id for change in changes], position) == (["a", "b"], 2)

    jetstream.run(attempt)


def test_without_its_bucket_the_feed_is_unavailable(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        await connection.js.delete_stream(kv_stream(names.runs_bucket))
        feed = JetStreamSnapshotFeed(connection, names)
        with pytest.raises(UnavailableError):
            await feed.read(after=0)
        with pytest.raises(UnavailableError, match=kv_stream(names.runs_bucket)):
            await feed.state()

    jetstream.run(attempt)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "no direct access"])
def test_a_bucket_that_announces_nothing_is_read_all_the_same(jetstream: JetStream, direct: bool) -> None:
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
            async with kept(connection, names) as made:
                await wait_until(lambda: made.keeper.is_current)
                await fill(connection, names, ["a", "b"])
                await wait_until(lambda: made.has_told("a") and made.has_told("b"))
                await JetStreamSnapshots(connection, names).delete("a")
                await wait_until(lambda: made.told[-1].body is None)
                assert await ids(made.index) == {"b"}

    asyncio.run(attempt())


def test_what_the_other_clients_of_a_bucket_remove_is_removed(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        bucket = await connection.js.key_value(names.runs_bucket)
        for key in ("deleted", "purged", "kept"):
            await bucket.put(key, body())
        await bucket.delete("deleted")
        await bucket.purge("purged")
        changes, _ = await JetStreamSnapshotFeed(connection, names).read(after=0)
        assert {change.run_id: change.body for change in changes} == {"deleted": None, "purged": None, "kept": body()}

    jetstream.run(attempt)


def test_ten_thousand_snapshots_are_caught_up_with_in_seconds(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> float:
        run_ids = [f"run{number}" for number in range(10_000)]
        await fill(connection, names, run_ids)
        async with SqliteRunIndex() as index:
            made = Kept(connection, names, index)
            began = time.monotonic()
            await made.keeper.catch_up()
            took = time.monotonic() - began
            assert await index.counts() == {"RUNNING": 10_000}
            assert await ids(index) == set(run_ids)
            return took

    assert jetstream.run(attempt) < 15.0


@asynccontextmanager
async def asked(connection: Connection, names: Names) -> AsyncIterator[list[bytes]]:
    """What the stream of snapshots is asked for meanwhile."""
    requests: list[bytes] = []
    stream = kv_stream(names.runs_bucket)
    listening = await connection.nc.listen(f"$JS.API.DIRECT.GET.{stream}", lambda _, data, *__: requests.append(data))
    await connection.nc.flush()
    yield requests
    await connection.nc.leave(listening)


async def heard(feed: JetStreamSnapshotFeed, sequence: int) -> None:
    """Wait until the feed has been told of that change."""
    await wait_until(lambda: bool(feed._heard._changes) and feed._heard._changes[-1].sequence == sequence)


def test_what_was_announced_need_not_be_asked_for(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed, snapshots = JetStreamSnapshotFeed(connection, names), JetStreamSnapshots(connection, names)
        await fill(connection, names, ["first"])
        _, position = await feed.read(after=0)
        async with asked(connection, names) as requests:
            await fill(connection, names, ["a", "b", "gone"])
            again = await snapshots.write("a", body(2), position=2, revision=2)
            await connection.js.publish(kv_subject(names.runs_bucket, "gone"), headers={"KV-Operation": "PURGE"})
            await heard(feed, 6)
            changes, position = await feed.read(after=position)
            assert not requests
        expected = {"b": (body(), 3), "a": (body(2), again), "gone": (None, 6)}
        assert {change.run_id: (change.body, change.sequence) for change in changes} == expected
        assert [change.sequence for change in changes] == [3, 5, 6]
        assert (position, await feed.read(after=position)) == (6, ([], 6))

    jetstream.run(attempt)


def test_what_was_announced_is_read_in_parts_too(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed = JetStreamSnapshotFeed(connection, names)
        await fill(connection, names, ["first"])
        _, position = await feed.read(after=0)
        await fill(connection, names, [f"r{number}" for number in range(5)])
        await heard(feed, 6)
        sizes = []
        while changes := (await feed.read(after=position, limit=2))[0]:
            sizes.append(len(changes))
            position = changes[-1].sequence
        assert (sizes, position) == ([2, 2, 1], 6)

    jetstream.run(attempt)


def test_who_has_missed_an_announcement_asks_for_all_behind_it(jetstream: JetStream) -> None:
    async def attempt(connection: Connection, names: Names) -> None:
        feed = JetStreamSnapshotFeed(connection, names)
        await fill(connection, names, ["first"])
        _, position = await feed.read(after=0)
        await fill(connection, names, ["a", "b", "c"])
        await heard(feed, 4)
        feed._heard._changes.popleft()
        changes, position = await feed.read(after=position)
        assert [change.run_id for change in changes] == ["a", "b", "c"]
        assert position == 4

    jetstream.run(attempt)


@pytest.mark.parametrize("sequences", [[1, 3], [7, 1]], ids=["one is missing", "begun anew"])
def test_a_gap_makes_what_was_heard_before_it_worthless(sequences: list[int]) -> None:
    told = _Heard()
    for sequence in sequences:
        told.take("r", body(), b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence)
    first, last = sequences
    assert told.behind(first - 1, 500) == []
    assert [change.sequence for change in told.behind(last - 1, 500)] == ([last] if last > first else [])


def test_no_more_is_kept_of_what_was_announced_than_a_reader_may_want() -> None:
    told = _Heard()
    for sequence in range(1, MOST_HEARD + 2):
        told.take(f"r{sequence}", b"", b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence)
    assert len(told._changes) == 1
    large = bytes(MOST_BYTES_HEARD // 2)
    for sequence in range(5):
        told.take(f"r{sequence}", large, b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % (5_000 + sequence))
    assert sum(len(change.body or b"") for change in told._changes) <= 2 * MOST_BYTES_HEARD


@pytest.mark.parametrize("mark", ["KV-Operation: DEL", "KV-Operation: PURGE", "Nats-Marker-Reason: MaxAge"])
def test_a_marker_that_was_announced_is_no_value(mark: str) -> None:
    told = _Heard()
    told.take("r", b"", f"NATS/1.0\r\n{mark}\r\nNats-Sequence: 1\r\n\r\n".encode())
    assert told.behind(0, 500) == [SnapshotChange("r", None, 1)]


@pytest.mark.parametrize("step", [1, 2], ids=["read", "forgotten for a gap"])
def test_what_is_not_kept_any_more_takes_no_room(step: int) -> None:
    told, large = _Heard(), bytes(MOST_BYTES_HEARD // 4)
    for sequence in range(1, 20 * step, step):
        told.take("r", large, b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence)
        assert len(told.behind(sequence - 1, 500)) == 1
    newest = [sequence + 1, sequence + 2]
    for number in newest:
        told.take(f"r{number}", large, b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % number)
    assert [change.sequence for change in told.behind(sequence, 500)] == newest


def test_a_bucket_that_announces_without_the_snapshots_is_asked_for_them(jetstream: JetStream) -> None:
    """As buckets are that were made by earlier versions."""

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
                made, announced = Kept(connection, names, index), list[str]()
                made.feed.listen(lambda run_id, body: announced.append(run_id) if body is None else None)
                await fill(connection, names, ["first"])
                await made.keeper.catch_up()
                await fill(connection, names, ["a", "b"])
                await wait_until(lambda: announced[-2:] == ["a", "b"])
                await made.keeper.catch_up()
                assert [(change.run_id, change.body) for change in made.told[1:]] == [("a", body()), ("b", body())]
                assert await ids(index) == {"first", "a", "b"}

    asyncio.run(attempt())

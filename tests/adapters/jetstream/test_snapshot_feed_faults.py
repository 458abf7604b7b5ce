"""The feed and the index behind it, when the server dies, and when other hands were at the bucket."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from nats.js.api import StreamConfig

from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.snapshot_feed import JetStreamSnapshotFeed
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
        feed = JetStreamSnapshotFeed(connection, names)
        self.keeper = IndexKeeper(feed, index, self.told.append, poll_sec=0.2)

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

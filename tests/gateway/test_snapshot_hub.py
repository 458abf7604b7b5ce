"""The hub without a gateway: limits, slots, announcements without a snapshot."""

import asyncio
import json
import logging

import msgspec
import pytest

from pyoco_server.app.ports import SnapshotChange, StoredSnapshot, UnavailableError
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.live.snapshot_hub import MOST_READS, SnapshotHub, SnapshotUpdate, Watcher
from tests.waiting import wait_until


class Store:
    """A run's snapshot, which takes a while to read; counts the reads."""

    def __init__(self) -> None:
        self.revision = 1
        self.reads = 0
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()

    async def read(self, _run_id: str) -> StoredSnapshot | None:
        self.reads += 1
        revision = self.revision
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return StoredSnapshot("r", json.dumps({"n": revision}).encode(), 0, revision) if revision else None


def hub_on(store: Store, *, most: int = 100, most_per_client: int = 100) -> SnapshotHub:
    return SnapshotHub(store.read, most=most, most_per_client=most_per_client)


def change(revision: int, body: bytes | None = None, run_id: str = "r") -> SnapshotChange:
    return SnapshotChange(run_id, body if body is not None else json.dumps({"n": revision}).encode(), revision)


async def shown(watcher: Watcher) -> int | None:
    update = await watcher.next(0.01)
    return None if update is None else int(json.loads(encoded(update))["n"])


def encoded(update: SnapshotUpdate, *, records: bool = False) -> bytes:
    snapshot = update.snapshot(records=records)
    assert snapshot is not None
    return bytes(snapshot)


def test_streams_have_a_limit_for_all_and_the_hub_forgets_those_that_leave() -> None:
    async def body() -> None:
        hub = hub_on(Store(), most=2, most_per_client=2)
        with hub.watch("r1", "a"), hub.watch("r2", "b"):
            with pytest.raises(TooManyError, match="2 connections watch already"), hub.watch("r3", "c"):
                pass
            with hub.wait_for("r3", "c"):  # waiting requests have a limit of their own
                assert (hub.streams.count, hub.requests.count) == (2, 1)
        assert (hub.streams.count, hub.requests.count) == (0, 0)
        assert not hub._watchers
        assert not hub._waiting
        assert not hub.streams._clients

    asyncio.run(body())


def test_waiting_requests_have_a_limit_for_each_client_and_for_all() -> None:
    async def body() -> None:
        hub = hub_on(Store(), most=3, most_per_client=2)
        with hub.wait_for("a", "ann"), hub.wait_for("a", "ann"):
            with pytest.raises(TooManyError, match="2 of your requests wait already"), hub.wait_for("b", "ann"):
                pass
            with (
                hub.wait_for("b", "bob"),
                pytest.raises(TooManyError, match="3 requests wait already"),
                hub.wait_for("b", "eve"),
            ):
                pass

    asyncio.run(body())


def test_a_waiting_request_takes_the_newest_snapshot_once() -> None:
    async def body() -> None:
        hub = hub_on(Store())
        with hub.wait_for("a", "ann") as other, hub.wait_for("r", "bob") as waiting:
            hub.announce("r", change(7))
            assert (waiting.is_changed, other.is_changed) == (True, False)
            newest = waiting.take()
            assert newest is not None
            assert newest.body == b'{"n": 7}'
            assert (waiting.is_changed, waiting.take()) == (False, None)
            for revision in (6, 7):  # the index brings the same changes later, in order
                hub.notify(change(revision))
            assert not waiting.is_changed
            hub.notify(SnapshotChange("r", None, 8))  # removed: the request has to read
            assert (waiting.is_changed, waiting.take()) == (True, None)

    asyncio.run(body())


def test_a_hub_that_closes_wakes_waiting_requests_and_no_stream() -> None:
    async def body() -> None:
        hub = hub_on(Store())
        with hub.wait_for("r", "ann") as waiting, hub.watch("r", "ann") as stream:
            hub.close()
            assert (hub.is_closed, waiting.is_changed, stream.is_changed) == (True, True, False)

    asyncio.run(body())


def test_a_slow_reader_is_shown_the_newest_of_many_snapshots() -> None:
    async def body() -> None:
        hub = hub_on(Store())
        with hub.watch("r", "a") as slow, hub.watch("r", "a") as other:
            for n in range(100):
                hub.notify(change(n + 1, msgspec.json.encode({"n": n, "updated_at": n, "task_records": {}})))
            hub.notify(change(101, run_id="else"))
            update = await slow.next(1)
            assert update is not None
            assert encoded(update) == b'{"n":99,"updated_at":99}'
            assert update.updated_at == 99
            assert await other.next(1) is update  # encoded once for all readers
            hub.notify(change(99))  # an older one that arrived late
            assert await slow.next(0.01) is None

    asyncio.run(body())


def test_a_snapshot_of_another_program_is_sent_as_it_is() -> None:
    assert SnapshotUpdate(b'{"status":"RUNNING"}', 1).updated_at == 0.0
    foreign = b'{"updated_at":"x","task_records":{}}'
    assert encoded(SnapshotUpdate(foreign, 1), records=True) == foreign


@pytest.mark.parametrize("body", [b"", b"oh", b"[1]", b'{"n": 9', b'{"n": "\xff"}', b'{"n": 1e999}'])
def test_a_damaged_snapshot_has_nothing_to_show(body: bytes) -> None:
    update = SnapshotUpdate(body, 1)
    assert (update.snapshot(records=False), update.snapshot(records=True), update.updated_at) == (None, None, 0.0)


def test_an_announced_snapshot_needs_no_read() -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        with hub.watch("r", "a") as watcher:
            hub.announce("r", change(3))
            assert [await shown(watcher), store.reads] == [3, 0]

    asyncio.run(body())


def test_one_read_serves_all_watchers_and_all_earlier_announcements() -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        with hub.watch("r", "a") as one, hub.watch("r", "b") as other:
            store.may_answer.set()
            hub.announce("r", None)
            store.revision = 2
            hub.announce("r", None)
            await wait_until(lambda: not hub._reading)
            assert [await shown(one), await shown(other), store.reads] == [2, 2, 1]
            assert not hub._changed_again

    asyncio.run(body())


def test_an_announcement_during_a_read_leads_to_another_read() -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        with hub.watch("r", "a") as watcher:
            hub.announce("r", None)
            await wait_until(lambda: store.reads == 1)
            store.revision = 3
            hub.announce("r", None)
            hub.announce("r", None)
            store.may_answer.set()
            await wait_until(lambda: not hub._reading)
            assert [await shown(watcher), store.reads] == [3, 2]

    asyncio.run(body())


def test_an_announcement_for_a_run_without_watchers_is_not_read() -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        with hub.watch("r", "a"):
            pass
        hub.announce("r", None)
        assert (hub._reading, store.reads) == ({}, 0)

    asyncio.run(body())


def test_a_snapshot_that_cannot_be_read_is_left_to_the_index() -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        store.may_answer.set()
        with hub.watch("r", "a") as watcher:
            store.error = UnavailableError("no answer")
            hub.announce("r", None)
            await wait_until(lambda: not hub._reading)
            store.error, store.revision = None, 0  # it was removed
            hub.announce("r", None)
            await wait_until(lambda: not hub._reading)
            assert [await shown(watcher), store.reads] == [None, 2]

    asyncio.run(body())


def test_a_read_that_crashes_is_logged_with_its_id_and_the_next_change_arrives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        store.may_answer.set()
        with hub.watch("r", "a") as watcher:
            store.error = RuntimeError("unexpected")
            hub.announce("r", None)
            await wait_until(lambda: not hub._reading)
            [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
            assert line.__dict__["err_id"] == "ERR-PYOCO-0106"
            assert line.__dict__["run_id"] == "r"
            assert line.exc_info is not None
            assert line.exc_info[1] is store.error
            hub.notify(change(1))  # by the index
            assert await shown(watcher) == 1
            store.error, store.revision = None, 2
            hub.announce("r", None)
            await wait_until(lambda: not hub._reading)
            assert [await shown(watcher), store.reads] == [2, 2]

    asyncio.run(body())


def test_reads_at_a_time_are_limited_and_the_index_brings_the_rest() -> None:
    async def body() -> None:
        store = Store()
        hub = hub_on(store)
        runs = [f"r{number}" for number in range(3 * MOST_READS)]
        watching = [hub.watch(run_id, "a") for run_id in runs]
        for each in watching:
            each.__enter__()
        for run_id in runs:
            hub.announce(run_id, None)
        await wait_until(lambda: store.reads == MOST_READS)
        store.may_answer.set()
        await wait_until(lambda: not hub._reading)
        assert store.reads == MOST_READS
        for each in watching:
            each.__exit__(None, None, None)

    asyncio.run(body())

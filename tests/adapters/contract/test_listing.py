"""Listing logs, which of them have a snapshot, and jobs; in memory and on JetStream."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores import listing
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.stores.listing import JetStreamListing
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.listing import MemoryListing
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import EventLog, Snapshots, WorkQueue
from pyoco_server.app.ports.listing import ListedLog, StoreListing
from tests.adapters.conftest import Backend
from tests.adapters.events import note


class Stores(NamedTuple):
    """Stores, and the list of what they contain."""

    log: EventLog
    snapshots: Snapshots
    queue: WorkQueue
    listing: StoreListing

    async def logs(self) -> list[ListedLog]:
        return sorted([log async for page in self.listing.logs() for log in page])

    async def jobs(self) -> list[bytes]:
        return sorted([body async for page in self.listing.jobs() for body in page])

    async def begin(self, run_id: str, *, commits: int = 1, shown: bool = True) -> None:
        position = 0
        for number in range(commits):
            position = await self.log.append(run_id, [note(str(number))], after=position)
        if shown:
            await self.snapshots.write(run_id, b'{"log_position":1}', position=1)


def run(backend: Backend, body: Callable[[Stores], Awaitable[None]]) -> None:
    def in_memory() -> Stores:
        log, snapshots, queue = MemoryEventLog(), MemorySnapshots(), MemoryWorkQueue(SystemClock())
        return Stores(log, snapshots, queue, MemoryListing(log, snapshots, queue))

    def on_jetstream(connection: Connection, names: Names) -> Stores:
        log, snapshots = JetStreamEventLog(connection, names), JetStreamSnapshots(connection, names)
        return Stores(log, snapshots, JetStreamWorkQueue(connection, names), JetStreamListing(connection, names))

    async def with_stores(open_stores: Callable[[], Awaitable[Stores]]) -> None:
        await body(await open_stores())

    backend.run(in_memory, on_jetstream, with_stores)


def test_empty_stores_list_nothing(backend: Backend) -> None:
    async def body(stores: Stores) -> None:
        assert (await stores.logs(), await stores.jobs()) == ([], [])

    run(backend, body)


def test_logs_are_listed_with_their_commits_and_whether_they_have_a_snapshot(backend: Backend) -> None:
    async def body(stores: Stores) -> None:
        for number in range(12):
            await stores.begin(f"run-{number:02}", commits=1 + number % 3, shown=number % 2 == 0)
        await stores.snapshots.write("no-log", b"{}", position=0)
        await stores.snapshots.write("zz-no-log", b"{}", position=0)
        await stores.begin("removed")
        await stores.snapshots.delete("removed")
        await stores.begin("forbidden", shown=False)
        await stores.snapshots.forbid("forbidden")
        expected = [ListedLog(f"run-{number:02}", 1 + number % 3, number % 2 == 0) for number in range(12)]
        assert await stores.logs() == [ListedLog("forbidden", 1, True), ListedLog("removed", 1, True), *expected]

    run(backend, body)


def test_jobs_are_listed_until_they_are_settled(backend: Backend) -> None:
    async def body(stores: Stores) -> None:
        for tag, job in (("a", b"1"), ("b", b"2"), ("a", b"3")):
            await stores.queue.publish(tag, job, dedup_id=job.decode())
        assert await stores.jobs() == [b"1", b"2", b"3"]
        delivery = await stores.queue.pull("a", timeout_sec=5)
        assert delivery is not None
        assert await stores.jobs() == [b"1", b"2", b"3"]
        await delivery.ack()
        assert await stores.jobs() == sorted({b"1", b"2", b"3"} - {delivery.body})

    run(backend, body)


def test_the_state_changes_with_every_change_and_no_read(backend: Backend) -> None:
    async def body(stores: Stores) -> None:
        states = [await stores.listing.state()]

        async def has_changed() -> None:
            states.append(await stores.listing.state())
            assert len({*states}) == len(states)

        await stores.begin("r", shown=False)
        await has_changed()
        await stores.snapshots.write("r", b"{}", position=1)
        await has_changed()
        await stores.snapshots.delete("r")
        await has_changed()
        await stores.queue.publish("t", b"1", dedup_id="1")
        await has_changed()
        delivery = await stores.queue.pull("t", timeout_sec=5)
        assert delivery is not None
        await delivery.ack()
        await has_changed()
        await stores.log.read("r")
        await stores.logs()
        assert await stores.listing.state() == states[-1]

    run(backend, body)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_of_the_server_are_merged_at_their_borders(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The server returns 100,000 subjects at a time; here the pages are cut smaller."""
    whole = listing.JetStreamListing._info

    async def cut(self: JetStreamListing, stream: str, request: dict[str, object]) -> listing._StreamInfo:
        info = await whole(self, stream, {name: given for name, given in request.items() if name != "offset"})
        if "subjects_filter" in request and info.state.subjects:
            begin = int(str(request["offset"]))
            ordered = sorted(info.state.subjects.items())
            info.total, info.state.subjects = len(ordered), dict(ordered[begin : begin + size])
        return info

    monkeypatch.setattr(listing.JetStreamListing, "_info", cut)

    async def body(stores: Stores) -> None:
        shown = {"b", "d", "e", "h"}
        for run_id in "abcdefgh":
            await stores.begin(run_id, shown=run_id in shown)
        for run_id in ("0", "c1", "c2", "z"):
            await stores.snapshots.write(run_id, b"{}", position=0)
        assert await stores.logs() == [ListedLog(run_id, 1, run_id in shown) for run_id in "abcdefgh"]

    run(backend, body)

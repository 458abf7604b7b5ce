"""Those who wait for the disk share its syncs, and none is told before a sync has ended that began after they asked."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.graphs import JetStreamGraphRegistry
from pyoco_server.adapters.jetstream.group_sync import Done, FileSyncer, StreamGroup
from pyoco_server.adapters.jetstream.names import Names, kv_stream, object_stream
from pyoco_server.adapters.jetstream.outputs import JetStreamOutputStore
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.store_files import StreamFiles
from pyoco_server.adapters.jetstream.store_sync import SYNC_SUBJECT
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.submitting import Submission, Submitter
from pyoco_server.core import Actor, ActorKind
from tests.adapters.events import note, texts
from tests.waiting import wait_until

NAMES = Names()
SOMEBODY = Actor(ActorKind.USER, "somebody")


class Hand:
    """Serves as a syncer: a sync ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Done] = []
        self.is_closed = False

    def begin(self, done: Done) -> None:
        self.begun.append(done)

    def close(self) -> None:
        self.is_closed = True

    def end(self, error: UnavailableError | None = None) -> None:
        self.begun[-1](error)


def scene(body: Callable[[StreamGroup, Hand], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        hand = Hand()
        await body(StreamGroup(hand), hand)

    asyncio.run(main())


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_those_who_come_while_one_is_under_way_share_the_next() -> None:
    async def body(group: StreamGroup, hand: Hand) -> None:
        early = [asyncio.create_task(group.wait()) for _ in range(3)]
        await _turns()
        late = [asyncio.create_task(group.wait()) for _ in range(5)]
        await _turns()
        assert len(hand.begun) == 1
        hand.end()
        await _turns()
        assert all(task.done() for task in early)
        assert not any(task.done() for task in late)
        assert len(hand.begun) == 2
        hand.end()
        await asyncio.gather(*late)
        assert len(hand.begun) == 2

    scene(body)


def test_a_failure_is_told_to_those_it_concerns() -> None:
    async def body(group: StreamGroup, hand: Hand) -> None:
        first = asyncio.create_task(group.wait())
        await _turns()
        second = asyncio.create_task(group.wait())
        await _turns()
        hand.end(UnavailableError("the disk is full"))
        with pytest.raises(UnavailableError, match="full"):
            await first
        await _turns()
        hand.end()
        await second

    scene(body)


def test_who_does_not_wait_any_more_is_in_nobodys_way() -> None:
    async def body(group: StreamGroup, hand: Hand) -> None:
        gone, there = asyncio.create_task(group.wait()), asyncio.create_task(group.wait())
        await _turns()
        gone.cancel()
        await _turns()
        hand.end()
        await there
        assert gone.cancelled()

    scene(body)


def test_when_it_is_closed_nobody_waits_for_ever() -> None:
    async def body(group: StreamGroup, hand: Hand) -> None:
        first = asyncio.create_task(group.wait())
        await _turns()
        second = asyncio.create_task(group.wait())
        await _turns()
        group.close()
        for task in (first, second):
            with pytest.raises(UnavailableError, match="closed"):
                await task
        assert hand.is_closed
        hand.end()  # of one that was under way; nobody is told

    scene(body)


class Failing(StreamFiles):
    """Files on a disk that fails once."""

    def __init__(self, stream_dir: Path) -> None:
        self.tries = 0
        super().__init__(stream_dir, sync=self.fail)

    def fail(self, _fd: int) -> None:
        self.tries += 1
        raise OSError(5, "Input/output error")


def test_after_a_failure_of_the_disk_none_succeeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was lost is not told again by the system: a later sync would seem to have succeeded."""
    stream = tmp_path / "a" / "b" / "c" / "d" / "S"
    (stream / "msgs").mkdir(parents=True)
    for name in ("meta.inf", "meta.sum", "msgs/1.blk"):
        (stream / name).write_text("x")
    files = Failing(stream)

    async def body() -> None:
        group = StreamGroup(FileSyncer(files, name="S"))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="the disk failed to take"):
                await group.wait()
        assert files.tries == 1
        group.close()

    asyncio.run(body())
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_a_stream_that_is_not_there_yet_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    async def body() -> None:
        group = StreamGroup(FileSyncer(StreamFiles(tmp_path / "a" / "b" / "c" / "d" / "S"), name="S"))
        with pytest.raises(UnavailableError, match="cannot be synced"):
            await group.wait()
        stream = tmp_path / "a" / "b" / "c" / "d" / "S"
        (stream / "msgs").mkdir(parents=True)
        for name in ("meta.inf", "meta.sum"):
            (stream / name).write_text("x")
        await group.wait()
        group.close()

    asyncio.run(body())


# --- On a server -----------------------------------------------------------------------------------------------------


async def _open(server: NatsServer) -> Connection:
    connection = await connect(server.url, name="test", request_timeout_sec=1.0)
    await provision(connection, NAMES)
    return connection


class Counting:
    """Counts syncs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _fd: int) -> None:
        self.count += 1


@pytest.mark.parametrize(("durability", "host", "syncs"), [("sync", "127.0.0.1", 1), ("fast", "127.0.0.1", 0)])
def test_clients_sync_where_the_server_leaves_it_to_them(
    tmp_path: Path, durability: Any, host: str, syncs: int
) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path, durability=durability, host=host) as server:
            connection = await _open(server)
            connection.syncs.sync_file = counting = Counting()
            await JetStreamEventLog(connection, NAMES).append("r", [note("x")], after=0)
            assert counting.count == syncs
            await connection.close()

    asyncio.run(body())


def test_a_server_others_can_reach_syncs_by_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path, host="0.0.0.0") as server:  # noqa: S104 what is tested
            connection = await _open(server)
            connection.syncs.sync_file = counting = Counting()
            await JetStreamEventLog(connection, NAMES).append("r", [note("x")], after=0)
            assert counting.count == 0
            assert "sync_interval: always" in (tmp_path / "nats-server.conf").read_text()
            await connection.close()

    asyncio.run(body())


def test_who_cannot_reach_the_files_has_them_synced(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            gateway = await _open(server)
            gateway.syncs.sync_file = counting = Counting()
            await gateway.serve_syncs()
            await gateway.sync(NAMES.events_stream)  # it has found the files
            before = counting.count
            (tmp_path / "nats-server.conf").write_text("of another server")
            elsewhere = await _open(server)
            elsewhere.syncs.sync_file = not_here = Counting()
            log = JetStreamEventLog(elsewhere, NAMES)
            await asyncio.gather(*(log.append(f"r{number}", [note("x")], after=0) for number in range(50)))
            assert 1 <= counting.count - before <= 50
            assert not_here.count == 0
            await elsewhere.close()
            await gateway.close()

    asyncio.run(body())


def test_where_nobody_syncs_nothing_is_confirmed(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            (tmp_path / "nats-server.conf").write_text("of another server")
            elsewhere = await _open(server)
            log = JetStreamEventLog(elsewhere, NAMES, patience_sec=0.2)
            with pytest.raises(UnavailableError, match="nobody who runs the embedded NATS server"):
                await log.append("r", [note("x")], after=0)
            await elsewhere.close()

    asyncio.run(body())


def test_nobody_can_have_other_files_synced(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            gateway = await _open(server)
            await gateway.serve_syncs()
            answers = [
                (await gateway.nc.ask(SYNC_SUBJECT, name, b"", timeout=1.0)).data
                for name in (b"../../..", b"", b"NOT_THERE", NAMES.events_stream.encode())
            ]
            assert [answer.startswith(b"+OK") for answer in answers] == [False, False, False, True]
            await gateway.close()

    asyncio.run(body())


def test_threads_end_with_the_connection(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await _open(server)
            log = JetStreamEventLog(connection, NAMES)
            await log.append("r", [note("x")], after=0)
            assert _syncing()
            await connection.close()
            await wait_until(lambda: not _syncing())

    asyncio.run(body())


def _syncing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sync of ")]


def test_a_server_that_is_started_again_is_synced_again(tmp_path: Path) -> None:
    """Under another name: its files are looked for anew."""

    async def body() -> None:
        server = NatsServer(tmp_path)
        await server.start()
        connection = await _open(server)
        log = JetStreamEventLog(connection, NAMES)
        end = await log.append("r", [note("first")], after=0)
        first = connection.nc.server_name
        port = int(server.url.rpartition(":")[2])
        await server.stop()
        again = NatsServer(tmp_path, port=port)
        await again.start()
        await wait_until(lambda: connection.is_connected and connection.nc.server_name != first)
        connection.syncs.sync_file = counting = Counting()
        await log.append("r", [note("second")], after=end)
        assert counting.count > 0
        assert texts((await log.read("r"))[0]) == ["first", "second"]
        await connection.close()
        await again.stop()

    asyncio.run(body())


class Dying:
    """A disk that takes no more from some moment on, of one stream."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.is_dead = False

    def __call__(self, fd: int) -> None:
        if self.is_dead and self.stream in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stream", [NAMES.events_stream, kv_stream(NAMES.runs_bucket), NAMES.work_stream])
def test_no_submission_is_accepted_of_which_the_disk_did_not_take_all(tmp_path: Path, stream: str) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await _open(server)
            connection.syncs.sync_file = disk = Dying(stream)
            submitter = Submitter(
                log=JetStreamEventLog(connection, NAMES),
                snapshots=JetStreamSnapshots(connection, NAMES),
                queue=JetStreamWorkQueue(connection, NAMES),
                clock=SystemClock(),
                new_id=uuid_maker(),
                max_snapshot_bytes=100_000,
            )
            await submitter.submit(Submission(flow_name="hello"), SOMEBODY)
            disk.is_dead = True
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    await submitter.submit(Submission(flow_name="hello"), SOMEBODY)
            await connection.close()

    asyncio.run(body())


def test_what_is_there_already_is_confirmed_when_it_is_durable(tmp_path: Path) -> None:
    """Whoever put it may not have waited for that; before, what could be seen was durable."""

    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await _open(server)
            graphs, outputs = JetStreamGraphRegistry(connection, NAMES), JetStreamOutputStore(connection, NAMES)
            for bucket, put in (
                (kv_stream(NAMES.graphs_bucket), lambda: graphs.put("g", b"{}")),
                (object_stream(NAMES.outputs_bucket), lambda: outputs.put("o", b"x")),
            ):
                connection.syncs.sync_file = disk = Dying(bucket)
                await put()
                disk.is_dead = True
                with pytest.raises(UnavailableError, match="the disk failed"):
                    await put()
            await connection.close()

    asyncio.run(body())


def test_nobody_can_have_threads_started_for_streams_there_are_not(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            gateway = await _open(server)
            await gateway.serve_syncs()
            for number in range(20):
                await gateway.nc.ask(SYNC_SUBJECT, b"INVENTED_%d" % number, b"", timeout=1.0)
            assert not _syncing()
            await gateway.close()

    asyncio.run(body())


def test_a_closed_connection_syncs_no_more(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await _open(server)
            await connection.close()
            with pytest.raises(UnavailableError, match="closed"):
                await connection.sync(NAMES.events_stream)
            assert not _syncing()

    asyncio.run(body())


class Crashing(StreamFiles):
    """Files nobody can cope with."""

    @override
    def sync(self) -> None:
        raise ValueError("unheard of")


def test_who_waits_is_told_also_of_what_nobody_expected(tmp_path: Path) -> None:
    async def body() -> None:
        group = StreamGroup(FileSyncer(Crashing(tmp_path), name="S"))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="unheard of"):
                await group.wait()
        group.close()

    asyncio.run(body())

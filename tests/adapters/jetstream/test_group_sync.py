"""Group commit: writers share syncs, and each waits for a sync that began after its request."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.durability.group_commit import Done, FileSyncer, GroupCommit
from pyoco_server.adapters.jetstream.durability.remote_sync import SYNC_SUBJECT
from pyoco_server.adapters.jetstream.durability.stream_files import StreamFiles
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, object_stream
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.stores.graphs import JetStreamGraphRegistry
from pyoco_server.adapters.jetstream.stores.outputs import JetStreamOutputStore
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.submit import Submission, Submitter
from pyoco_server.core import Actor, ActorKind
from tests.adapters.events import note, texts
from tests.waiting import wait_until

NAMES = Names()
USER = Actor(ActorKind.USER, "alice")


class ManualSyncer:
    """A syncer whose syncs end when the test calls :meth:`end`."""

    def __init__(self) -> None:
        self.begun: list[Done] = []
        self.is_closed = False

    def begin(self, done: Done) -> None:
        self.begun.append(done)

    def close(self) -> None:
        self.is_closed = True

    def end(self, error: UnavailableError | None = None) -> None:
        self.begun[-1](error)


def scene(body: Callable[[GroupCommit, ManualSyncer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        syncer = ManualSyncer()
        await body(GroupCommit(syncer), syncer)

    asyncio.run(main())


async def _loop_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_waiters_that_arrive_during_a_sync_share_the_next_one() -> None:
    async def body(group: GroupCommit, syncer: ManualSyncer) -> None:
        early = [asyncio.create_task(group.wait()) for _ in range(3)]
        await _loop_turns()
        late = [asyncio.create_task(group.wait()) for _ in range(5)]
        await _loop_turns()
        assert len(syncer.begun) == 1
        syncer.end()
        await _loop_turns()
        assert all(task.done() for task in early)
        assert not any(task.done() for task in late)
        assert len(syncer.begun) == 2
        syncer.end()
        await asyncio.gather(*late)
        assert len(syncer.begun) == 2

    scene(body)


def test_failed_sync_fails_only_its_own_waiters() -> None:
    async def body(group: GroupCommit, syncer: ManualSyncer) -> None:
        first = asyncio.create_task(group.wait())
        await _loop_turns()
        second = asyncio.create_task(group.wait())
        await _loop_turns()
        syncer.end(UnavailableError("the disk is full"))
        with pytest.raises(UnavailableError, match="full"):
            await first
        await _loop_turns()
        syncer.end()
        await second

    scene(body)


def test_cancelled_waiter_does_not_disturb_the_others() -> None:
    async def body(group: GroupCommit, syncer: ManualSyncer) -> None:
        cancelled, waiting = asyncio.create_task(group.wait()), asyncio.create_task(group.wait())
        await _loop_turns()
        cancelled.cancel()
        await _loop_turns()
        syncer.end()
        await waiting
        assert cancelled.cancelled()

    scene(body)


def test_close_fails_all_waiters() -> None:
    async def body(group: GroupCommit, syncer: ManualSyncer) -> None:
        first = asyncio.create_task(group.wait())
        await _loop_turns()
        second = asyncio.create_task(group.wait())
        await _loop_turns()
        group.close()
        for task in (first, second):
            with pytest.raises(UnavailableError, match="closed"):
                await task
        assert syncer.is_closed
        syncer.end()  # the sync that was running ends after the close, and has no waiter

    scene(body)


class Failing(StreamFiles):
    """Files on a disk that fails once."""

    def __init__(self, stream_dir: Path) -> None:
        self.tries = 0
        super().__init__(stream_dir, sync=self.fail)

    def fail(self, _fd: int) -> None:
        self.tries += 1
        raise OSError(5, "Input/output error")


def test_no_sync_succeeds_after_a_failure_of_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel reports lost data only once: a later sync would seem to succeed."""
    stream = tmp_path / "a" / "b" / "c" / "d" / "S"
    (stream / "msgs").mkdir(parents=True)
    for name in ("meta.inf", "meta.sum", "msgs/1.blk"):
        (stream / name).write_text("x")
    files = Failing(stream)

    async def body() -> None:
        group = GroupCommit(FileSyncer(files, name="S"))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="the disk failed to store"):
                await group.wait()
        assert files.tries == 1
        group.close()

    asyncio.run(body())
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_sync_of_a_missing_stream_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    async def body() -> None:
        group = GroupCommit(FileSyncer(StreamFiles(tmp_path / "a" / "b" / "c" / "d" / "S"), name="S"))
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
def test_client_syncs_if_the_server_does_not(tmp_path: Path, durability: Any, host: str, syncs: int) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path, durability=durability, host=host) as server:
            connection = await _open(server)
            connection.syncs.sync_file = counting = Counting()
            await JetStreamEventLog(connection, NAMES).append("r", [note("x")], after=0)
            assert counting.count == syncs
            await connection.close()

    asyncio.run(body())


def test_server_on_a_public_address_syncs_by_itself(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path, host="0.0.0.0") as server:  # noqa: S104 what is tested
            connection = await _open(server)
            connection.syncs.sync_file = counting = Counting()
            await JetStreamEventLog(connection, NAMES).append("r", [note("x")], after=0)
            assert counting.count == 0
            assert "sync_interval: always" in (tmp_path / "nats-server.conf").read_text()
            await connection.close()

    asyncio.run(body())


def test_client_without_access_to_the_files_requests_syncs_from_the_gateway(tmp_path: Path) -> None:
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


def test_append_is_unavailable_if_no_gateway_syncs(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            (tmp_path / "nats-server.conf").write_text("of another server")
            elsewhere = await _open(server)
            log = JetStreamEventLog(elsewhere, NAMES, patience_sec=0.2)
            with pytest.raises(UnavailableError, match="no gateway syncs the store of the embedded NATS server"):
                await log.append("r", [note("x")], after=0)
            await elsewhere.close()

    asyncio.run(body())


def test_sync_request_for_other_files_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            gateway = await _open(server)
            await gateway.serve_syncs()
            answers = [
                (await gateway.nc.request_raw(SYNC_SUBJECT, name, b"", timeout=1.0)).data
                for name in (b"../../..", b"", b"NOT_THERE", NAMES.events_stream.encode())
            ]
            assert [answer.startswith(b"+OK") for answer in answers] == [False, False, False, True]
            await gateway.close()

    asyncio.run(body())


def test_sync_threads_end_with_the_connection(tmp_path: Path) -> None:
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


def test_restarted_server_is_synced_again(tmp_path: Path) -> None:
    """A restarted server has another name, so the connection must find its files again."""

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
    """A disk that fails the syncs of one stream while ``is_dead``."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.is_dead = False

    def __call__(self, fd: int) -> None:
        if self.is_dead and self.stream in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stream", [NAMES.events_stream, kv_stream(NAMES.runs_bucket), NAMES.work_stream])
def test_submission_fails_if_any_of_its_streams_is_not_synced(tmp_path: Path, stream: str) -> None:
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
            await submitter.submit(Submission(flow_name="hello"), USER)
            disk.is_dead = True
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    await submitter.submit(Submission(flow_name="hello"), USER)
            await connection.close()

    asyncio.run(body())


def test_put_of_existing_data_is_confirmed_only_after_a_sync(tmp_path: Path) -> None:
    """The first writer may have died before its sync, so existing data may not be durable yet."""

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


def test_sync_request_for_a_missing_stream_starts_no_thread(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            gateway = await _open(server)
            await gateway.serve_syncs()
            for number in range(20):
                await gateway.nc.request_raw(SYNC_SUBJECT, b"INVENTED_%d" % number, b"", timeout=1.0)
            assert not _syncing()
            await gateway.close()

    asyncio.run(body())


def test_sync_on_a_closed_connection_fails(tmp_path: Path) -> None:
    async def body() -> None:
        async with NatsServer(tmp_path) as server:
            connection = await _open(server)
            await connection.close()
            with pytest.raises(UnavailableError, match="closed"):
                await connection.sync(NAMES.events_stream)
            assert not _syncing()

    asyncio.run(body())


class Crashing(StreamFiles):
    """Files whose sync raises an unexpected error."""

    @override
    def sync(self) -> None:
        raise ValueError("unexpected")


def test_unexpected_error_of_a_sync_fails_its_waiters(tmp_path: Path) -> None:
    async def body() -> None:
        group = GroupCommit(FileSyncer(Crashing(tmp_path), name="S"))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="unexpected"):
                await group.wait()
        group.close()

    asyncio.run(body())

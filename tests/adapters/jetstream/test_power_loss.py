"""Loss of power: everything that was confirmed is in the part of the files that was synced."""

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.runs.job import decode_job
from pyoco_server.app.runs.submit import Submission, Submitter
from pyoco_server.core import Actor, ActorKind
from tests.adapters.events import note, texts
from tests.waiting import wait_until

NAMES = Names()
USER = Actor(ActorKind.USER, "alice")
SLOW_SEC = 0.002


class Disk:
    """Records for every file its size at the start of its last completed sync: what a loss of power leaves.

    A slow disk is synced in a thread. A quick one is synced on the event loop, so a test never sees it behind.
    """

    def __init__(self, slow_sec: float) -> None:
        self.slow_sec = slow_sec
        self.on_loop = 0
        self._loop_thread = threading.get_ident()
        self.kept: dict[int, int] = {}
        self.under_way: dict[int, int] = {}

    def sync(self, fd: int) -> None:
        self.on_loop += threading.get_ident() == self._loop_thread
        written = os.fstat(fd)
        self.under_way[written.st_ino] = written.st_size
        time.sleep(self.slow_sec)
        if self.slow_sec:  # the test is about confirmations and syncs, not about the disk of this machine
            os.fdatasync(fd)
        self.kept[written.st_ino] = max(written.st_size, self.kept.get(written.st_ino, 0))

    def is_behind(self) -> bool:
        """Return whether a loss of power would lose data whose sync has begun."""
        return any(size > self.kept.get(inode, 0) for inode, size in self.under_way.copy().items())


def copy_synced_data(server: NatsServer, data_dir: Path, target: Path, kept: Mapping[int, int]) -> int:
    """Copy what a loss of power leaves to ``target``; return how many bytes are lost.

    Only unsynced messages are lost. Other files of the server stay, even if they refer to lost messages.
    """
    assert server.pid is not None
    lost = 0
    os.kill(server.pid, signal.SIGSTOP)
    try:
        shutil.copytree(data_dir / "jetstream", target / "jetstream")
        for block in (data_dir / "jetstream").rglob("*.blk"):
            stat = block.stat()
            os.truncate(target / block.relative_to(data_dir), kept.get(stat.st_ino, 0))
            lost += stat.st_size - kept.get(stat.st_ino, 0)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    return lost


class Platform:
    """The stores that the tests write to, on one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.log = JetStreamEventLog(connection, NAMES)
        self.snapshots = JetStreamSnapshots(connection, NAMES)
        self.queue = JetStreamWorkQueue(connection, NAMES)
        self.submitter = Submitter(
            log=self.log,
            snapshots=self.snapshots,
            queue=self.queue,
            clock=SystemClock(),
            new_id=uuid_maker(),
            max_snapshot_bytes=100_000,
        )


async def _open(server: NatsServer) -> Platform:
    connection = await connect(server.url, name="test")
    await provision(connection, NAMES)
    return Platform(connection)


async def _until_the_power_fails(
    tmp_path: Path,
    write: Callable[[Platform, int], Coroutine[Any, Any, None]],
    confirmations: Callable[[], list[str]],
    enough: int,
    slow_sec: float,
) -> list[str]:
    """Run sixteen writers until ``enough`` writes are confirmed, and lose power: return those; after/ has the disk."""
    disk = Disk(slow_sec)
    async with NatsServer(tmp_path / "before") as server:
        platform = await _open(server)
        platform.connection.syncs.sync_file = disk.sync
        writing = [asyncio.create_task(write(platform, number)) for number in range(16)]
        await wait_until(
            lambda: len(confirmations()) >= enough and (disk.is_behind() if slow_sec else disk.on_loop > 0),
            timeout=60.0,
        )
        confirmed, kept = [*confirmations()], dict(disk.kept)
        lost = copy_synced_data(server, tmp_path / "before", tmp_path / "after", kept)
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        await platform.connection.close()
    assert lost > 0 or not slow_sec, "no writer was waiting for the disk"
    return confirmed


@pytest.mark.parametrize("slow_sec", [SLOW_SEC, 0.0])
def test_no_confirmed_commit_is_lost(tmp_path: Path, slow_sec: float) -> None:
    done: list[str] = []

    async def write(platform: Platform, number: int) -> None:
        run_id, end = f"r{number}", 0
        while True:
            text = f"{run_id} {end} {'x' * 3000}"
            end = await platform.log.append(run_id, [note(text)], after=end)
            done.append(text)

    async def body() -> None:
        confirmed = await _until_the_power_fails(tmp_path, write, lambda: done, 1_000, slow_sec)
        async with NatsServer(tmp_path / "after") as server:
            platform = await _open(server)
            there = [text for number in range(16) for text in texts((await platform.log.read(f"r{number}"))[0])]
            assert set(confirmed) <= set(there)
            await platform.connection.close()

    asyncio.run(body())


@pytest.mark.parametrize("slow_sec", [SLOW_SEC, 0.0])
def test_no_accepted_run_is_lost(tmp_path: Path, slow_sec: float) -> None:
    """Its log, its snapshot and its job survive; and no job survives without its log."""
    accepted: list[str] = []

    async def write(platform: Platform, number: int) -> None:
        submission = Submission(flow_name="hello", params={"number": number, "more": "x" * 2000})
        while True:
            snapshot = await platform.submitter.submit(submission, USER)
            accepted.append(str(snapshot["run_id"]))

    async def body() -> None:
        confirmed = await _until_the_power_fails(tmp_path, write, lambda: accepted, 400, slow_sec)
        async with NatsServer(tmp_path / "after") as server:
            platform = await _open(server)
            jobs = [decode_job(job) for job in await _jobs(platform)]
            queued = {job.run_id for job in jobs}
            assert set(confirmed) <= queued
            for run_id in {*confirmed, *queued}:
                assert (await platform.log.read(run_id))[1] > 0
            for run_id in confirmed:
                assert await platform.snapshots.read(run_id) is not None
            await platform.connection.close()

    asyncio.run(body())


async def _jobs(platform: Platform) -> list[bytes]:
    reader, start, found = StreamReader(platform.connection, NAMES.work_stream), 1, list[bytes]()
    while page := (await reader.page(NAMES.work_subject("default"), start=start)).messages:
        found += [message.data for message in page]
        start = page[-1].sequence + 1
    return found


def test_log_is_durable_when_it_has_been_read(tmp_path: Path) -> None:
    """A writer dies between the server's answer and its sync; a reader of its commit may rely on that commit."""

    async def body() -> None:
        disk = Disk(SLOW_SEC)
        async with NatsServer(tmp_path / "before") as server:
            platform, hasty = await _open(server), await _open(server)
            platform.connection.syncs.sync_file = disk.sync
            end = await platform.log.append("r", [note("first")], after=0)
            reached, over = threading.Event(), threading.Event()

            def hang(_fd: int) -> None:
                reached.set()
                over.wait()

            hasty.connection.syncs.sync_file = hang
            dying = asyncio.create_task(hasty.log.append("r", [note("second")], after=end))
            await wait_until(reached.is_set)
            dying.cancel()
            assert texts((await platform.log.read("r"))[0]) == ["first", "second"]
            copy_synced_data(server, tmp_path / "before", tmp_path / "after", disk.kept)
            over.set()
            await asyncio.gather(dying, return_exceptions=True)
            await hasty.connection.close()
            await platform.connection.close()
        async with NatsServer(tmp_path / "after") as server:
            platform = await _open(server)
            assert texts((await platform.log.read("r"))[0]) == ["first", "second"]
            await platform.connection.close()

    asyncio.run(body())

"""The power fails: what is on the disk then is what was synced, and all that anybody was told of is in it."""

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

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.app.jobs import decode_job
from pyoco_server.app.submitting import Submission, Submitter
from pyoco_server.core import Actor, ActorKind
from tests.adapters.events import note, texts
from tests.waiting import wait_until

NAMES = Names()
SOMEBODY = Actor(ActorKind.USER, "somebody")
SLOW_SEC = 0.002


class Disk:
    """One of which is known how much of every file had been written when a sync of it began that has ended.

    A slow one is waited for in a thread; a quick one on the event loop, and is never seen to be behind.
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
        if self.slow_sec:  # what counts here is what was told of which sync, not the disk of this machine
            os.fdatasync(fd)
        self.kept[written.st_ino] = max(written.st_size, self.kept.get(written.st_ino, 0))

    def is_behind(self) -> bool:
        """Is there something that was written, and would be lost?"""
        return any(size > self.kept.get(inode, 0) for inode, size in self.under_way.copy().items())


def what_is_left(server: NatsServer, data_dir: Path, target: Path, kept: Mapping[int, int]) -> int:
    """What a loss of power leaves, in a directory of its own; returns how many bytes are lost.

    Only messages are lost. What the server writes beside them is there, also if it tells of messages that are not.
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
    """What is written to, on one connection."""

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
    told: Callable[[], list[str]],
    enough: int,
    slow_sec: float,
) -> list[str]:
    """Sixteen write until enough was confirmed; returns what was, when the power failed. What is left is in after/."""
    disk = Disk(slow_sec)
    async with NatsServer(tmp_path / "before") as server:
        platform = await _open(server)
        platform.connection.syncs.sync_file = disk.sync
        writing = [asyncio.create_task(write(platform, number)) for number in range(16)]
        await wait_until(lambda: len(told()) >= enough and (not slow_sec or disk.is_behind()), timeout=60.0)
        confirmed, kept = [*told()], dict(disk.kept)
        lost = what_is_left(server, tmp_path / "before", tmp_path / "after", kept)
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        await platform.connection.close()
    assert lost > 0 or not slow_sec  # somebody was waiting for the disk
    assert disk.on_loop or slow_sec
    return confirmed


@pytest.mark.parametrize("slow_sec", [SLOW_SEC, 0.0])
def test_no_commit_that_was_confirmed_is_lost(tmp_path: Path, slow_sec: float) -> None:
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
def test_no_run_that_was_accepted_is_lost(tmp_path: Path, slow_sec: float) -> None:
    """Its log, its snapshot and its job are there; and no job is there without its log."""
    accepted: list[str] = []

    async def write(platform: Platform, number: int) -> None:
        submission = Submission(flow_name="hello", params={"number": number, "more": "x" * 2000})
        while True:
            snapshot = await platform.submitter.submit(submission, SOMEBODY)
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


def test_a_log_that_is_read_is_durable_whoever_wrote_it(tmp_path: Path) -> None:
    """Somebody dies between the server's answer and the sync; whoever goes on from what they wrote may rely on it."""

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
            what_is_left(server, tmp_path / "before", tmp_path / "after", disk.kept)
            over.set()
            await asyncio.gather(dying, return_exceptions=True)
            await hasty.connection.close()
            await platform.connection.close()
        async with NatsServer(tmp_path / "after") as server:
            platform = await _open(server)
            assert texts((await platform.log.read("r"))[0]) == ["first", "second"]
            await platform.connection.close()

    asyncio.run(body())

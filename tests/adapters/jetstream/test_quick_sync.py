"""A quick disk is synced on the event loop and a slow one in a thread; waiters see the same results."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.group_commit import FileSyncer, GroupCommit
from pyoco_server.adapters.jetstream.durability.stream_files import StreamFiles
from pyoco_server.app.ports import UnavailableError
from tests.waiting import wait_until

SLOW_SEC = 0.01


class Disk:
    """A disk whose syncs take ``takes_sec``; it records the thread of each."""

    def __init__(self) -> None:
        self.takes_sec = 0.0
        self.threads: list[int] = []
        self.error: OSError | None = None

    def sync(self, _fd: int) -> None:
        self.threads.append(threading.get_ident())
        if self.takes_sec:
            time.sleep(self.takes_sec)
        if self.error is not None:
            raise self.error

    def was_on_the_loop(self) -> bool:
        return self.threads[-1] == threading.get_ident()


def a_stream(tmp_path: Path) -> Path:
    stream = tmp_path / "a" / "b" / "c" / "d" / "S"
    (stream / "msgs").mkdir(parents=True)
    for name in ("meta.inf", "meta.sum", "msgs/1.blk"):
        (stream / name).write_text("x")
    return stream


async def become_quick(group: GroupCommit, syncer: FileSyncer) -> None:
    async with asyncio.timeout(30):  # the disk takes no time, but the machine may have other things to do
        while not syncer.is_quick:
            await group.wait()


def test_disk_is_synced_on_the_loop_after_it_was_quick_for_a_while(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        syncer = FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S")
        group = GroupCommit(syncer)
        await group.wait()
        assert not disk.was_on_the_loop()
        await become_quick(group, syncer)
        await group.wait()
        assert disk.was_on_the_loop()
        before = len(disk.threads)
        await asyncio.gather(*(group.wait() for _ in range(50)))
        assert len(disk.threads) == before + 1, "concurrent waiters share a sync on the loop, too"
        group.close()

    asyncio.run(body())


def test_slow_disk_is_never_synced_on_the_loop(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        disk.takes_sec = SLOW_SEC
        group = GroupCommit(FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S"))
        for _ in range(80):
            await group.wait()
            assert not disk.was_on_the_loop()
        group.close()

    asyncio.run(body())


def test_quick_disk_is_synced_in_a_thread_again_after_one_slow_sync(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        syncer = FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S")
        group = GroupCommit(syncer)
        await become_quick(group, syncer)
        disk.takes_sec = 0.2
        await group.wait()
        disk.takes_sec = 0.0
        for _ in range(20):
            await group.wait()
            assert not disk.was_on_the_loop()
        await become_quick(group, syncer)
        group.close()

    asyncio.run(body())


def test_failure_of_a_quick_disk_fails_its_waiters(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        syncer = FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S")
        group = GroupCommit(syncer)
        await become_quick(group, syncer)
        disk.error = OSError(5, "Input/output error")
        with pytest.raises(UnavailableError, match="the disk failed to store"):
            await group.wait()
        disk.error = None
        with pytest.raises(UnavailableError, match="the disk failed to store"):
            await group.wait()
        group.close()

    asyncio.run(body())


def test_closed_group_syncs_no_file(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        files = StreamFiles(a_stream(tmp_path), sync=disk.sync)
        syncer = FileSyncer(files, name="S")
        group = GroupCommit(syncer)
        await become_quick(group, syncer)
        waiting = asyncio.create_task(group.wait())
        await asyncio.sleep(0)  # the sync is requested, and has not begun
        synced = len(disk.threads)
        group.close()
        with pytest.raises(UnavailableError, match="closed"):
            await waiting
        await asyncio.sleep(0.01)
        assert len(disk.threads) == synced
        await wait_until(lambda: not [one for one in threading.enumerate() if one.name == "sync of S"])

    asyncio.run(body())

"""A quick disk is waited for on the event loop, a slow one elsewhere; either way all are told, and of the same."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.group_sync import FileSyncer, StreamGroup
from pyoco_server.adapters.jetstream.store_files import StreamFiles
from pyoco_server.app.ports import UnavailableError
from tests.waiting import wait_until

SLOW_SEC = 0.01


class Disk:
    """Takes as long as the test says, and notes in which thread it was waited for."""

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


async def become_quick(group: StreamGroup, syncer: FileSyncer) -> None:
    async with asyncio.timeout(30):  # the disk takes no time, but the machine may have other things to do
        while not syncer.is_quick:
            await group.wait()


def test_a_disk_is_waited_for_on_the_loop_when_it_has_shown_that_it_is_quick(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        syncer = FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S")
        group = StreamGroup(syncer)
        await group.wait()
        assert not disk.was_on_the_loop()
        await become_quick(group, syncer)
        await group.wait()
        assert disk.was_on_the_loop()
        before = len(disk.threads)
        await asyncio.gather(*(group.wait() for _ in range(50)))
        assert len(disk.threads) == before + 1, "those who come together share a sync here, too"
        group.close()

    asyncio.run(body())


def test_a_slow_disk_is_never_waited_for_on_the_loop(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        disk.takes_sec = SLOW_SEC
        group = StreamGroup(FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S"))
        for _ in range(80):
            await group.wait()
            assert not disk.was_on_the_loop()
        group.close()

    asyncio.run(body())


def test_a_quick_disk_that_stands_still_once_has_to_show_itself_again(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        syncer = FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S")
        group = StreamGroup(syncer)
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


def test_a_quick_disk_that_fails_is_told_of_as_any_other(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        syncer = FileSyncer(StreamFiles(a_stream(tmp_path), sync=disk.sync), name="S")
        group = StreamGroup(syncer)
        await become_quick(group, syncer)
        disk.error = OSError(5, "Input/output error")
        with pytest.raises(UnavailableError, match="the disk failed to take"):
            await group.wait()
        disk.error = None
        with pytest.raises(UnavailableError, match="the disk failed to take"):
            await group.wait()
        group.close()

    asyncio.run(body())


def test_what_is_closed_opens_no_file_any_more(tmp_path: Path) -> None:
    async def body() -> None:
        disk = Disk()
        files = StreamFiles(a_stream(tmp_path), sync=disk.sync)
        syncer = FileSyncer(files, name="S")
        group = StreamGroup(syncer)
        await become_quick(group, syncer)
        waiting = asyncio.create_task(group.wait())
        await asyncio.sleep(0)  # it has asked, and the sync is to begin
        synced = len(disk.threads)
        group.close()
        with pytest.raises(UnavailableError, match="closed"):
            await waiting
        await asyncio.sleep(0.01)
        assert len(disk.threads) == synced
        await wait_until(lambda: not [one for one in threading.enumerate() if one.name == "sync of S"])

    asyncio.run(body())

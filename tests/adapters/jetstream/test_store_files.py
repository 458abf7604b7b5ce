"""Which files of a stream are synced, and when."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.stream_files import DiskFailedError, StreamFiles


class Store:
    """The directory of a stream as the server lays it out, and the names of the synced blocks."""

    def __init__(self, root: Path) -> None:
        self.stream = root / "jetstream" / "$G" / "streams" / "S"
        self.blocks = self.stream / "msgs"
        self.blocks.mkdir(parents=True)
        (self.stream / "meta.inf").write_text("{}")
        (self.stream / "meta.sum").write_text("1")
        self.synced: list[str] = []
        self.files = StreamFiles(self.stream, sync=self.sync)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)
        self.synced.append(Path(f"/proc/self/fd/{fd}").readlink().name.removesuffix(" (deleted)"))

    def block(self, number: int, text: str = "x") -> None:
        (self.blocks / f"{number}.blk").write_text(text)

    def synced_now(self) -> list[str]:
        self.synced.clear()
        self.files.sync()
        return [*self.synced]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_first_sync_covers_all_blocks_and_later_ones_the_newest(store: Store) -> None:
    for number in (1, 2, 3):
        store.block(number)
    (store.blocks / "index.db").write_text("not a block")
    assert store.synced_now() == ["1.blk", "2.blk", "3.blk"]
    assert store.synced_now() == ["3.blk"]


def test_new_blocks_are_synced_with_the_block_before_them(store: Store) -> None:
    store.block(1)
    store.files.sync()
    store.block(2)
    store.block(3)
    assert store.synced_now() == ["1.blk", "2.blk", "3.blk"]
    assert store.synced_now() == ["3.blk"]


def test_removed_block_before_a_new_one_is_skipped(store: Store) -> None:
    store.block(1)
    store.block(2)
    store.files.sync()
    (store.blocks / "2.blk").unlink()
    store.block(4)
    assert store.synced_now() == ["4.blk"]
    assert store.synced_now() == ["4.blk"]


@pytest.mark.parametrize("number", [1, 2])
def test_replaced_block_is_synced(store: Store, number: int) -> None:
    store.block(1)
    store.block(2)
    store.files.sync()
    (store.blocks / "new").write_text("y")
    (store.blocks / "new").rename(store.blocks / f"{number}.blk")
    assert f"{number}.blk" in store.synced_now()
    assert store.synced_now() == ["2.blk"]


def test_block_removed_during_a_sync_is_skipped(store: Store) -> None:
    store.block(1)
    store.block(2)
    first = store.sync

    def sync(fd: int) -> None:
        (store.blocks / "2.blk").unlink(missing_ok=True)
        first(fd)

    files = StreamFiles(store.stream, sync=sync)
    files.sync()
    assert store.synced == ["1.blk"]
    store.block(3)
    files.sync()
    assert store.synced[1:] == ["3.blk"]


def test_stream_without_blocks_has_nothing_to_sync(store: Store) -> None:
    assert store.synced_now() == []
    store.block(1)
    assert store.synced_now() == ["1.blk"]


def test_directory_is_scanned_only_after_a_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    many = 3
    for number in range(1, many + 1):
        store.block(number)
    _long_ago(store)
    store.files.sync()
    looks: list[Path] = []
    really: Callable[[Path], object] = os.scandir

    def scandir(path: Path) -> object:
        looks.append(path)
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert store.synced_now() == [f"{many}.blk"]
    assert not looks
    store.block(many + 1)
    assert store.synced_now() == [f"{many}.blk", f"{many + 1}.blk"]
    assert len(looks) == 1
    assert store.synced_now() == [f"{many + 1}.blk"]


def _long_ago(store: Store) -> None:
    os.utime(store.blocks, (1, 1))


def test_failed_disk_and_missing_directory_raise_different_errors(tmp_path: Path) -> None:
    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    broken = Store(tmp_path)
    broken.block(1)
    with pytest.raises(DiskFailedError, match="Input/output error"):
        StreamFiles(broken.stream, sync=fail).sync()
    with pytest.raises(FileNotFoundError):
        StreamFiles(tmp_path / "nowhere").sync()


def test_close_leaves_no_open_file(store: Store) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for number in range(1, 20):
        store.block(number)
        store.files.sync()
    store.files.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_block_whose_sync_failed_is_synced_the_next_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files are open: blocks before the newest with unsynced data must not be forgotten."""
    store.block(1)
    store.files.sync()
    store.block(1, "more")
    store.block(2)
    store.block(3)
    really = os.open

    def busy(path: Path, *more: int) -> int:
        if Path(path).name == "2.blk":
            raise OSError(24, "Too many open files")
        return really(path, *more)

    monkeypatch.setattr(os, "open", busy)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            store.files.sync()
    monkeypatch.undo()
    assert store.synced_now() == ["2.blk", "3.blk"]
    assert store.synced_now() == ["3.blk"]

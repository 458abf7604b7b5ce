"""Syncs the files in which a NATS server on this machine keeps a stream.

The server writes a message to the newest file of its stream (a *block*, named by a growing number) before it
acknowledges it. A sync of that file by any process, begun after the acknowledgement, makes the message durable, and
with it everything before it in the file.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

SyncFile = Callable[[int], None]
"""Returns when everything written to an open file is on the disk; OSError if the disk failed."""

sync_file: Final[SyncFile] = getattr(os, "fdatasync", os.fsync)

_SETTLED_NS: Final = 50_000_000
"""The time of a directory's last change is only as exact as a tick of the system's clock; 50 ms is longer than any."""


class DiskFailedError(Exception):
    """The disk failed to store what was written. What is lost is unknown."""


class StreamFiles:
    """The files of one stream. Blocks until the disk answers. For one thread at a time.

    The server may remove a block whose messages are all gone, or put another in its place, at any time.
    """

    def __init__(self, stream_dir: Path, *, sync: SyncFile = sync_file) -> None:
        self._stream_dir = stream_dir
        self._blocks_dir = stream_dir / "msgs"
        self._sync = sync
        self._is_known = False
        self._inodes: dict[int, int] = {}
        self._newest = 0
        self._newest_fd: int | None = None
        self._changed_ns = 0
        self._has_settled = False
        self._unsynced: set[int] = set()
        """Complete blocks, and rewritten ones, that are still to be synced."""
        self._names_changed = True

    def sync(self) -> None:
        """Return when everything that was written to the stream before this call is on the disk.

        DiskFailedError if the disk failed; OSError if no sync was possible, for example because there is no such
        stream.
        """
        if not self._is_known:
            sync_description(self._stream_dir)
            self._is_known = True
        if self._may_have_changed():
            self._look()
        for number in sorted(self._unsynced | {self._newest}):
            self._sync_block(number)
            self._unsynced.discard(number)
        if self._names_changed:
            _sync_path(self._blocks_dir)
            self._names_changed = False

    def close(self) -> None:
        """Close the open block."""
        if self._newest_fd is not None:
            fd, self._newest_fd = self._newest_fd, None
            with contextlib.suppress(OSError):  # a disk that failed; the descriptor is closed even so
                os.close(fd)

    def _may_have_changed(self) -> bool:
        """Whether there can be other blocks than at the last look, which takes longer the more blocks there are."""
        return not self._has_settled or self._blocks_dir.stat().st_mtime_ns != self._changed_ns

    def _look(self) -> None:
        """Find the blocks to be synced, and remember them until a sync succeeds."""
        self._changed_ns = self._blocks_dir.stat().st_mtime_ns
        self._has_settled = time.time_ns() - self._changed_ns > _SETTLED_NS
        known, self._inodes = self._inodes, dict(_blocks(self._blocks_dir))
        last, self._newest = self._newest, max(self._inodes, default=0)
        if self._newest != last or self._inodes.get(last) != known.get(last):
            self.close()
        self._unsynced |= {
            number for number, inode in self._inodes.items() if number >= last or known.get(number) != inode
        }
        self._names_changed |= known != self._inodes

    def _sync_block(self, number: int) -> None:
        """Sync one block. A block that has disappeared held only deleted messages."""
        if number == self._newest and self._newest_fd is not None:
            self._sync_open(self._newest_fd)
            return
        try:
            fd = os.open(self._block(number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self._sync_open(fd)
        except BaseException:
            os.close(fd)
            raise
        if number == self._newest:
            self._newest_fd = fd
        else:
            os.close(fd)

    def _sync_open(self, fd: int) -> None:
        with _on_the_disk():
            self._sync(fd)

    def _block(self, number: int) -> Path:
        return self._blocks_dir / f"{number}.blk"


def sync_description(stream_dir: Path) -> None:
    """Sync the files that describe a stream, and the directories that lead to them.

    The server does not sync them when it creates a stream. Without them it cannot read the stream after a power loss.
    """
    for file in ("meta.inf", "meta.sum"):
        _sync_path(stream_dir / file)
    for directory in (stream_dir, *stream_dir.parents):
        with contextlib.suppress(PermissionError):  # a directory above ours that we may not read is not ours either
            _sync_path(directory)


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _on_the_disk():
            os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _on_the_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskFailedError(str(error)) from error


def _blocks(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield the number of each block, and its inode, which differs after a rewrite."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name, _, ending = entry.name.partition(".")
            if ending == "blk":
                with contextlib.suppress(ValueError):
                    yield int(name), entry.inode()

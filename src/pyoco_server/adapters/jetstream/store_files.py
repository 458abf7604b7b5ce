"""The files in which a NATS server on this machine keeps a stream, and how to get them onto the disk.

The server writes a message to the newest file of its stream (a *block*, named by a number that grows) before it
acknowledges it. What was written and by whom does not matter to the system: a sync of the file by anybody, begun after
the acknowledgement, makes the message durable, and with it everything that stands before it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

SyncFile = Callable[[int], None]
"""Returns when what was written to an open file is on the disk; OSError if the disk did not take it."""

sync_file: Final[SyncFile] = getattr(os, "fdatasync", os.fsync)

_SETTLED_NS: Final = 50_000_000
"""When a directory was last changed is known no better than to the tick of a clock; 50 ms is more than any."""


class DiskFailedError(Exception):
    """The disk did not take what was written. What of it is lost nobody can tell."""


class StreamFiles:
    """The files of one stream. Waits for the disk, which may take long. For one thread at a time.

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
        """Blocks that are not written to any more, or were put in the place of others, and are still to be synced."""
        self._names_changed = True

    def sync(self) -> None:
        """Return when all that was written to the stream before this was called is on the disk.

        DiskFailedError if it did not get there; OSError if that could not be tried, as when there is no such stream.
        """
        if not self._is_known:
            self._sync_surroundings()
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
        """Let go of what is open."""
        if self._newest_fd is not None:
            os.close(self._newest_fd)
            self._newest_fd = None

    def _may_have_changed(self) -> bool:
        """Can there be other blocks than at the last look? That takes its time, and the more there are the more."""
        return not self._has_settled or self._blocks_dir.stat().st_mtime_ns != self._changed_ns

    def _look(self) -> None:
        """Remember what has to be synced, also if that is not achieved this time."""
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
        """A block that is not there any more held nothing that anybody wants."""
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

    def _sync_surroundings(self) -> None:
        """What makes the files a stream, and the way to them; somebody may have made it a moment ago."""
        for file in ("meta.inf", "meta.sum"):
            _sync_path(self._stream_dir / file)
        for directory in (self._stream_dir, *self._stream_dir.parents[:4]):
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
    """The numbers of the blocks, and what tells one from another of the same number."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name, _, ending = entry.name.partition(".")
            if ending == "blk":
                with contextlib.suppress(ValueError):
                    yield int(name), entry.inode()

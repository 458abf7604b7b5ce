"""The data directory of a server: its locks, its files, and the streams stored in it.

The locks need no cleanup after a crash: the system releases one when the last process that has its file open is gone.
"""

import asyncio
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from pyoco_server.adapters.jetstream.durability.self_test import SCRATCH_PREFIX
from pyoco_server.adapters.jetstream.durability.server_name import CONFIGURATION, streams_below
from pyoco_server.adapters.nats_server.config import Configuration
from pyoco_server.adapters.nats_server.errors import DirectoryInUseError, DirectoryUnusableError, StoreDamagedError
from pyoco_server.adapters.nats_server.unclean_stop import UncleanStopMark
from pyoco_server.adapters.private_files import private_directory


class FileLock:
    """An exclusive lock on a file, which exists only while a process holds the lock, or died while it did.

    A child process that inherits ``fd`` holds the lock too, and keeps it if this process dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def is_held(self) -> bool:
        """Return whether this object holds the lock."""
        return self._fd is not None

    @property
    def fd(self) -> int:
        """The descriptor of the open file. Raises ``RuntimeError`` if the lock is not held."""
        if self._fd is None:
            raise RuntimeError(f"The lock '{self._path}' is not held.")
        return self._fd

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Raises ``OSError`` if the file cannot be made or locked at all."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file: then our lock is on a file that no other process opens.
            if os.path.samestat(os.fstat(fd), os.stat(self._path)):  # noqa: PTH116 (beside fstat)
                fd, self._fd = -1, fd
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            if fd >= 0:
                os.close(fd)
        return False

    def write(self, content: bytes) -> None:
        """Write a note for processes that find the lock taken."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)

    def note(self) -> bytes:
        """Return the note of the holder; empty if there is none."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def release(self) -> None:
        """Release the lock, also in children that inherited it, and remove the file; does nothing if it is not held."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with suppress(OSError):  # a file without a lock is harmless; the lock itself must be released
            self._path.unlink()
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def store_dir(data_dir: Path) -> Path:
    """Return where the server keeps its store below its directory."""
    return data_dir / "jetstream"


def stored_streams(data_dir: Path) -> frozenset[str]:
    """Return the streams on the disk, which a server on this directory must load."""
    streams = streams_below(data_dir)
    try:
        return frozenset(entry.name for entry in streams.iterdir() if _is_stream(entry))
    except FileNotFoundError:  # nothing stored yet
        return frozenset()
    except OSError as error:
        raise StoreDamagedError(store_dir(data_dir), (), f"{streams}: {error.strerror}") from error


def remove_unfinished_streams(data_dir: Path) -> Sequence[str]:
    """Remove the streams whose creation was cut short, and return their names; also scratch streams of self-tests.

    The server writes the files that describe a stream without a sync, so a power loss can leave them empty, and the
    server would not create the stream again. No message is lost: the process that creates a stream syncs these files
    before it confirms a message.
    """
    try:
        streams = [
            entry for entry in streams_below(data_dir).iterdir() if not entry.name.startswith(".") and entry.is_dir()
        ]
        scratch = [stream for stream in streams if stream.name.startswith(SCRATCH_PREFIX)]
        found = [stream for stream in streams if stream not in scratch and _is_unfinished(stream)]
    except OSError:  # nothing is stored yet, or it cannot be read: stored_streams reports that
        return ()
    for stream in (*scratch, *found):
        shutil.rmtree(stream)
    return sorted(stream.name for stream in found)


def _is_stream(directory: Path) -> bool:
    # The server marks a stream that it is deleting with a dot.
    return not directory.name.startswith(".") and not _is_unfinished(directory)


def _is_unfinished(stream: Path) -> bool:
    """Return whether a stream is not described completely and has no messages."""
    return not _is_described(stream) and not any(block.stat().st_size > 0 for block in stream.glob("msgs/*.blk"))


def _is_described(stream: Path) -> bool:
    try:
        msgspec.json.decode((stream / "meta.inf").read_bytes())
        return (stream / "meta.sum").stat().st_size > 0
    except (FileNotFoundError, msgspec.DecodeError):
        return False


ORPHAN_WAIT_SEC: Final = 5.0
"""How long a server whose supervisor is gone may take to end; Linux sends it a signal."""

SAID_BYTES: Final = 64 * 1024
LOG_TAIL_LINES: Final = 12


class _Holder(msgspec.Struct):
    supervisor: int | None = None
    server: int | None = None


class _Ports(msgspec.Struct):
    nats: list[str] = []


class DataDirectory:
    """A directory that one server at a time may use.

    There are two locks. The supervising process holds the first: while it is taken, a server here is supervised. The
    server holds the second, too: while only that is taken, the server has lost its supervisor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / CONFIGURATION
        self.log = self.path / "nats-server.log"
        self.output = self.path / "nats-server.out"
        self._mark = UncleanStopMark(self.path)
        self._supervisor_lock = FileLock(self.path / "supervisor.lock")
        self._server_lock = FileLock(self.path / "nats-server.lock")
        self._log_start = 0

    @property
    def lock_fd(self) -> int:
        """The descriptor of the lock that the server must inherit."""
        return self._server_lock.fd

    async def claim(self) -> None:
        """Make the directory if needed, and take its locks. Raises ``DirectoryInUseError`` if it is in use."""
        with self._usable():
            if self.path.exists() and not self.path.is_dir():
                raise DirectoryUnusableError(self.path, "it is not a directory")
            private_directory(self.path)
            if not self._supervisor_lock.try_acquire():
                raise self._in_use(is_orphan=False)
        try:
            await self._outlive_orphan()
            self.note_server(None)
        except BaseException:
            self.release()
            raise

    def mark_in_use(self) -> bool:
        """Mark the directory until :meth:`mark_stopped`; return whether the last server was not stopped cleanly."""
        with self._usable():
            was_left = self._mark.is_set()
            self._mark.set()
            return was_left

    def mark_stopped(self, *, is_synced: bool) -> None:
        """Note a clean stop; first put all files of the store on the disk, if they are to be synced."""
        store = store_dir(self.path)
        with self._usable():
            self._mark.clear(synced_first=store if is_synced and store.exists() else None)

    def note_server(self, pid: int | None) -> None:
        """Write down the process id of the server, for the error of another process that wants this directory."""
        with self._usable():
            self._server_lock.write(msgspec.json.encode(_Holder(supervisor=os.getpid(), server=pid)))

    def prepare(self, configuration: Configuration) -> None:
        """Write the configuration, and remove the files of an earlier server except its data."""
        text = configuration.text(data_dir=self.path, log=self.log)
        with self._usable():
            self._remove_ports_files()
            self._log_start = self.log.stat().st_size if self.log.exists() else 0
            written = self.config.with_suffix(".new")
            written.unlink(missing_ok=True)
            fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(os.fsencode(text))
            written.replace(self.config)

    def open_output(self) -> BinaryIO:
        """Open an empty file for the server's output: little, as it has a log, but a crash may print there."""
        with self._usable():
            fd = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            return os.fdopen(fd, "wb")

    def announced_port(self) -> int | None:
        """Return the port the server listens on, or None before it does. Only our server writes this file."""
        for file in self.path.glob("*.ports"):
            try:
                addresses = msgspec.json.decode(file.read_bytes(), type=_Ports).nats
            except (FileNotFoundError, msgspec.DecodeError):  # not written completely yet
                continue
            if addresses:
                return int(addresses[0].rpartition(":")[2])
        return None

    def said(self) -> str:
        """Return what the server has written to its log and output since its start; only the end if it is long."""
        log = _end_of(self.log, self._log_start)
        return "\n".join(part.strip() for part in (log, _end_of(self.output, 0)) if part.strip())

    def log_tail(self) -> str:
        """Return the last lines of it."""
        return "\n".join(self.said().splitlines()[-LOG_TAIL_LINES:])

    def complaints(self) -> list[str]:
        """Return the warnings and errors in it."""
        return [line for line in self.said().splitlines() if "[WRN]" in line or "[ERR]" in line]

    def release(self) -> None:
        """Release the directory, with nothing in it but data and logs."""
        if self._server_lock.is_held:
            with suppress(OSError):  # the next start does it anyway
                self._remove_ports_files()
        self._server_lock.release()
        self._supervisor_lock.release()

    async def _outlive_orphan(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ORPHAN_WAIT_SEC
        while True:
            with self._usable():
                if self._server_lock.try_acquire():
                    return
            if loop.time() > deadline:
                raise self._in_use(is_orphan=True)
            await asyncio.sleep(0.02)

    def _in_use(self, *, is_orphan: bool) -> DirectoryInUseError:
        try:
            holder = msgspec.json.decode(self._server_lock.note(), type=_Holder)
        except msgspec.DecodeError:  # not written yet
            holder = _Holder()
        return DirectoryInUseError(self.path, holder.supervisor, holder.server, is_orphan=is_orphan)

    def _remove_ports_files(self) -> None:
        for file in self.path.glob("*.ports"):
            file.unlink(missing_ok=True)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DirectoryUnusableError(self.path, error.strerror or str(error)) from error


def _end_of(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < start:  # the server has begun a new log
                start = 0
            file.seek(max(start, size - SAID_BYTES))
            return file.read().decode(errors="replace")
    except OSError:  # missing or unreadable: the caller reports a more important error
        return ""

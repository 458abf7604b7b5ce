"""The data directory of a server: who may use it, and the files in it."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from pyoco_server.adapters.nats_server.configuration import Configuration
from pyoco_server.adapters.nats_server.errors import DirectoryInUseError, DirectoryUnusableError
from pyoco_server.adapters.nats_server.locking import FileLock
from pyoco_server.adapters.store_address import CONFIGURATION

ORPHAN_WAIT_SEC: Final = 5.0
"""How long a server whose supervisor is gone may take to end; on Linux it is told to."""

SAID_BYTES: Final = 64 * 1024
LOG_TAIL_LINES: Final = 12


class _Holder(msgspec.Struct):
    supervisor: int | None = None
    server: int | None = None


class _Ports(msgspec.Struct):
    nats: list[str] = []


class DataDirectory:
    """A directory one server at a time may use.

    There are two locks. One is ours alone: while it is taken, somebody watches over a server here. The other is held
    by the server as well: while only that is taken, a server has lost whoever watched over it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / CONFIGURATION
        self.log = self.path / "nats-server.log"
        self.output = self.path / "nats-server.out"
        self._supervisor_lock = FileLock(self.path / "supervisor.lock")
        self._server_lock = FileLock(self.path / "nats-server.lock")
        self._log_start = 0

    @property
    def lock_fd(self) -> int:
        """The open file of the lock that the server has to inherit."""
        return self._server_lock.fd

    async def claim(self) -> None:
        """Make the directory, if need be, and take it for one server. Raises ``DirectoryInUseError`` if it is taken."""
        with self._usable():
            if self.path.exists() and not self.path.is_dir():
                raise DirectoryUnusableError(self.path, "it is not a directory")
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._supervisor_lock.try_acquire():
                raise self._in_use(is_orphan=False)
        try:
            await self._outlive_orphan()
            self.note_server(None)
        except BaseException:
            self.release()
            raise

    def note_server(self, pid: int | None) -> None:
        """Tell those who want this directory too whom they have to stop."""
        with self._usable():
            self._server_lock.write(msgspec.json.encode(_Holder(supervisor=os.getpid(), server=pid)))

    def prepare(self, configuration: Configuration) -> None:
        """Write the configuration and forget what an earlier server left here besides its data."""
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
        """An empty file for what the server prints: little, as it has a log, but its last words may be there."""
        with self._usable():
            fd = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            return os.fdopen(fd, "wb")

    def announced_port(self) -> int | None:
        """The port the server listens on, once it does. Only our own server writes this, whoever else has the port."""
        for file in self.path.glob("*.ports"):
            try:
                addresses = msgspec.json.decode(file.read_bytes(), type=_Ports).nats
            except (FileNotFoundError, msgspec.DecodeError):  # on its way
                continue
            if addresses:
                return int(addresses[0].rpartition(":")[2])
        return None

    def said(self) -> str:
        """What the server has written since it was last started, to its log and otherwise; the end of it, if long."""
        log = _end_of(self.log, self._log_start)
        return "\n".join(part.strip() for part in (log, _end_of(self.output, 0)) if part.strip())

    def log_tail(self) -> str:
        """The last lines of that."""
        return "\n".join(self.said().splitlines()[-LOG_TAIL_LINES:])

    def complaints(self) -> list[str]:
        """The warnings and errors among it."""
        return [line for line in self.said().splitlines() if "[WRN]" in line or "[ERR]" in line]

    def release(self) -> None:
        """Leave the directory to others, with nothing in it but data and logs."""
        if self._server_lock.is_held:
            with suppress(OSError):  # the next start has to do it anyway
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
            if size < start:  # a new log was begun meanwhile
                start = 0
            file.seek(max(start, size - SAID_BYTES))
            return file.read().decode(errors="replace")
    except OSError:  # not there, or not to be read: there is something else to complain about then
        return ""

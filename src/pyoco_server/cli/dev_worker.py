"""The worker of ``pyoco-server dev``: it has the flows of some files, and has them anew when a file changes.

A new worker takes over only when it could import everything: until then, and after a mistake, the old one stays.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from pyoco_server.cli.kept_worker import BEGIN, Report
from pyoco_server.cli.usage import UsageError
from pyoco_server.client.setup import API_KEY_VARIABLE, SERVER_VARIABLE

_LOOK_SEC: Final = 0.5
_AGAIN_SEC: Final = 1.0
_STOP_SEC: Final = 10.0
_SECRETS: Final = (API_KEY_VARIABLE, SERVER_VARIABLE, "PYOCO_AUTH_PEPPER")
"""Flows have no business with them."""

DEFAULTS: Final = {
    "PYOCO_LOG_FORMAT": "text",
    "PYOCO_LOG_LEVEL": "WARNING",
    "PYOCO_CONSUMER_ACK_WAIT_SEC": "5",
}
"""Unless they are set otherwise: somebody looks on, and does not want to wait long for the runs of a dead worker."""

Stamps = Mapping[Path, int]


class Teller(Protocol):
    """Whoever tells the reader."""

    def found(self, origins: Mapping[str, str], changed: Sequence[str]) -> None:
        """These flows there are now; ``changed`` files led to it, none at the start."""
        ...

    def refused(self, error: str, changed: Sequence[str], *, old_stay: bool) -> None:
        """What there is now cannot be used."""
        ...

    def died(self, ending: str) -> None:
        """The worker ended by itself, and is started anew."""
        ...


class DevWorker:
    """Keeps a worker for the flows of ``files``."""

    def __init__(self, files: Sequence[str], nats_url: str, teller: Teller) -> None:
        self._files = files
        self._teller = teller
        self._command = [sys.executable, "-m", "pyoco_server.cli.worker", "--nats-url", nats_url, "--worker-id", "dev"]
        for name in files:
            self._command += ["--flows", name]
        self._current: _Process | None = None
        self.looked = asyncio.Event()
        """Set as soon as it is known whether there are flows."""

    async def keep(self, *, stays: bool) -> None:
        """Go on until cancelled; UsageError if the files cannot be used, unless it ``stays`` for them to be mended."""
        changed: list[str] = []
        try:
            while True:
                known = await asyncio.to_thread(_stamps, self._files)
                await self._renew(known, changed, stays=stays)
                changed = await self._until_changed(known)
        finally:
            if self._current is not None:
                await self._current.end()

    async def _renew(self, known: Stamps, changed: Sequence[str], *, stays: bool) -> None:
        """Let a new worker take over, if it can."""
        async with _Process.started(self._command) as candidate:
            report = await self._report_of(candidate, known)
            if report is None:
                return
            if report.error is not None:
                if not stays:
                    raise UsageError(report.error, example="pyoco-server dev flows.py")
                self._teller.refused(report.error, changed, old_stay=self._current is not None)
                self.looked.set()
                return
            old, self._current = self._current, None
            if old is not None:
                await old.end()
            candidate.begin()
            self._current = candidate.kept()
        self._teller.found(report.origins, changed)
        self.looked.set()

    async def _report_of(self, candidate: "_Process", known: Stamps) -> Report | None:
        """What the candidate says; None if its files change before it says anything."""
        reporting = asyncio.create_task(candidate.report())
        try:
            while not reporting.done():
                await asyncio.wait({reporting}, timeout=_LOOK_SEC)
                if not reporting.done() and await asyncio.to_thread(_stamps, self._files) != known:
                    return None
            return reporting.result()
        finally:
            reporting.cancel()

    async def _until_changed(self, known: Stamps) -> list[str]:
        """The files that changed; none if it was the worker that ended."""
        while True:
            await asyncio.sleep(_LOOK_SEC)
            now = await asyncio.to_thread(_stamps, self._files)
            if now != known:
                return _differences(known, now)
            if self._current is not None and self._current.has_ended:
                self._teller.died(self._current.ending)
                self._current = None
                await asyncio.sleep(_AGAIN_SEC)
                return []


class _Process:
    """A worker process, and our end of the socket to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._is_kept = False

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, command: Sequence[str]) -> AsyncIterator[Self]:
        """A process that waits for the word to begin; it is ended with this, unless it is kept."""
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
            process = await asyncio.create_subprocess_exec(
                *command,
                "--kept-by",
                str(theirs.fileno()),
                env={**DEFAULTS, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us, who end it
                pass_fds=(theirs.fileno(),),
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        started = cls(process, reader, writer)
        try:
            yield started
        finally:
            if not started._is_kept:
                await started.end()

    def kept(self) -> Self:
        """Let it live on."""
        self._is_kept = True
        return self

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode or 0
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def report(self) -> Report:
        """What it found; an error if it ends before it can say so."""
        line = await self._reader.readline()
        if line:
            return msgspec.json.decode(line, type=Report)
        await self._process.wait()
        return Report(error=f"the worker {self.ending} while it looked for flows")

    def begin(self) -> None:
        """It is its turn."""
        self._writer.write(BEGIN)

    async def end(self) -> None:
        """Ask it to stop, and kill it if it does not."""
        try:
            if not self.has_ended:
                self._process.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(_STOP_SEC):
                        await self._process.wait()
                except TimeoutError:
                    self._process.kill()
                    await self._process.wait()
        finally:
            self._writer.close()


def _stamps(files: Iterable[str]) -> Stamps:
    """When the files, and the Python files beside them, last changed."""
    named = {Path(name).resolve() for name in files}
    beside = {path for folder in {path.parent for path in named} for path in folder.glob("*.py")}
    stamps = {}
    for path in named | beside:
        with contextlib.suppress(OSError):  # just being replaced
            stamps[path] = path.stat().st_mtime_ns
    return stamps


def _differences(before: Stamps, now: Stamps) -> list[str]:
    changed = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
    return sorted(shown_path(str(path)) for path in changed)


def shown_path(path: str) -> str:
    """A path as somebody here would write it."""
    there, here = Path(path), Path.cwd()
    return str(there.relative_to(here)) if there.is_relative_to(here) else path

"""The worker process of ``pyoco-server dev``, which is replaced when a file changes.

A new worker replaces the old one when it has imported all files: until then, and after an error, the old one stays.
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

from pyoco_server.cli.server.supervised_worker import BEGIN, Report
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.client.config import API_KEY_VARIABLE, SERVER_VARIABLE

_LOOK_SEC: Final = 0.5
_AGAIN_SEC: Final = 1.0
_STOP_SEC: Final = 10.0
_SECRETS: Final = (API_KEY_VARIABLE, SERVER_VARIABLE, "PYOCO_AUTH_PEPPER")
"""Flows must not see them."""

DEFAULTS: Final = {
    "PYOCO_LOG_FORMAT": "text",
    "PYOCO_LOG_LEVEL": "WARNING",
    "PYOCO_CONSUMER_ACK_WAIT_SEC": "5",
}
"""Defaults for a developer who watches: readable logs, and a short wait for the runs of a dead worker."""

Stamps = Mapping[Path, int]


class DevReporter(Protocol):
    """Reports to the user."""

    def found(self, origins: Mapping[str, str], changed: Sequence[str]) -> None:
        """The worker has these flows; ``changed`` are the files that were loaded again, none at the start."""
        ...

    def refused(self, error: str, changed: Sequence[str], *, old_stay: bool) -> None:
        """The files cannot be loaded."""
        ...

    def died(self, ending: str) -> None:
        """The worker ended by itself, and is started again."""
        ...


class DevWorker:
    """Runs a worker with the flows of ``files``, and replaces it when they change."""

    def __init__(self, files: Sequence[str], nats_url: str, reporter: DevReporter) -> None:
        self._files = files
        self._reporter = reporter
        self._command = [
            sys.executable,
            "-m",
            "pyoco_server.cli.worker",
            "--nats-url",
            nats_url,
            "--worker-id",
            "dev",
        ]
        for name in files:
            self._command += ["--flows", name]
        self._current: _Process | None = None
        self.looked = asyncio.Event()
        """Set when the files were loaded for the first time, or could not be."""

    async def keep(self, *, stays: bool) -> None:
        """Run until cancelled; UsageError if the files cannot be loaded, unless it ``stays`` for corrections."""
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
        """Start a new worker, and replace the old one if it can load the files."""
        async with _Process.started(self._command) as candidate:
            report = await self._report_of(candidate, known)
            if report is None:
                return
            if report.error is not None:
                if not stays:
                    raise UsageError(report.error, example="pyoco-server dev flows.py")
                self._reporter.refused(report.error, changed, old_stay=self._current is not None)
                self.looked.set()
                return
            old, self._current = self._current, None
            if old is not None:
                await old.end()
            candidate.begin()
            self._current = candidate.kept()
        self._reporter.found(report.origins, changed)
        self.looked.set()

    async def _report_of(self, candidate: "_Process", known: Stamps) -> Report | None:
        """Return the report of the candidate; None if its files change before it has reported."""
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
        """Wait for a change and return the changed files; none if the worker has ended."""
        while True:
            await asyncio.sleep(_LOOK_SEC)
            now = await asyncio.to_thread(_stamps, self._files)
            if now != known:
                return _differences(known, now)
            if self._current is not None and self._current.has_ended:
                self._reporter.died(self._current.ending)
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
        """Start a process that reports and waits for ``begin``; end it with the block, unless it is kept."""
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
            process = await asyncio.create_subprocess_exec(
                *command,
                "--kept-by",
                str(theirs.fileno()),
                env={**DEFAULTS, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C goes to this process, which ends the worker
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
        """Keep the process running after the block."""
        self._is_kept = True
        return self

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def ending(self) -> str:
        """How the process ended, for the user."""
        code = self._process.returncode or 0
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def report(self) -> Report:
        """Return its report; one with an error if it ends before it has reported."""
        line = await self._reader.readline()
        if line:
            return msgspec.json.decode(line, type=Report)
        await self._process.wait()
        return Report(error=f"the worker {self.ending} while it looked for flows")

    def begin(self) -> None:
        """Let the worker take jobs."""
        self._writer.write(BEGIN)

    async def end(self) -> None:
        """Stop the process, and kill it if it does not stop in time."""
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
    """Return when the files, and the Python files beside them, were last changed."""
    named = {Path(name).resolve() for name in files}
    beside = {path for folder in {path.parent for path in named} for path in folder.glob("*.py")}
    stamps = {}
    for path in named | beside:
        with contextlib.suppress(OSError):  # it is being replaced
            stamps[path] = path.stat().st_mtime_ns
    return stamps


def _differences(before: Stamps, now: Stamps) -> list[str]:
    changed = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
    return sorted(shown_path(str(path)) for path in changed)


def shown_path(path: str) -> str:
    """Return a path relative to the current directory, if it is below it."""
    there, here = Path(path), Path.cwd()
    return str(there.relative_to(here)) if there.is_relative_to(here) else path

"""A terminal, as a reader has it: what a command prints is meant for people, and Ctrl-C stops it."""

import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.docs.matching import plain

PATIENCE_SEC: Final = 60.0


class Terminal:
    """One command in a terminal of its own."""

    def __init__(self, script: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self.command = script.read_text(encoding="utf-8").strip()
        self._changed = threading.Condition()
        self._printed = b""
        ours, theirs = pty.openpty()
        try:
            self._process = subprocess.Popen(  # noqa: S603 what our own pages say
                ["/bin/bash", str(script)],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,), name="terminal", daemon=True)
        self._reader.start()

    @property
    def printed(self) -> str:
        """All of it so far, as one reads it."""
        with self._changed:
            return plain(self._printed.decode(errors="replace"))

    def finish(self) -> int:
        """Wait for the end of the command; its exit code."""
        code = self._process.wait(PATIENCE_SEC)
        self._reader.join(PATIENCE_SEC)
        return code

    def wait_until(self, holds: Callable[[str], object]) -> None:
        """Wait until this is true of what was printed."""
        deadline = time.monotonic() + PATIENCE_SEC
        while not holds(self.printed):
            assert self._process.poll() is None, f"{self.command} has ended:\n{self.printed}"
            assert time.monotonic() < deadline, f"{self.command} has only printed:\n{self.printed}"
            with self._changed:
                self._changed.wait(0.1)

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait until everything has stopped; what does not stop is killed, and that is a failure."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self.finish()
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise

    def _read(self, ours: int) -> None:
        try:
            while more := os.read(ours, 65_536):
                with self._changed:
                    self._printed += more
                    self._changed.notify_all()
        except OSError:
            pass  # how Linux says that nobody has the other end any more
        finally:
            os.close(ours)

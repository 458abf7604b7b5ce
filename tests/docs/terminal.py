"""A terminal as a reader has it, and the comparison of what a command prints with what a page shows."""

import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

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
            pass  # on Linux this means that the other end is closed
        finally:
            os.close(ours)


# --- Comparing what a page shows with what a command printed ----------------------------------------------------------

_LOOSE: Final = (
    (r"[0-9a-f]{8}…", r"[0-9a-f]{8}-[0-9a-f-]{27}"),  # an id, shortened on the page
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
    (r"\d\d:\d\d:\d\d", r"\d\d:\d\d:\d\d"),
    (r"\d+\.\d+ ?s\b", r"\d+\.\d+ ?s"),
    (r"127\.0\.0\.1:\d+", r"127\.0\.0\.1:\d+"),
    (r"…", r".*"),
    (r" +", r" +"),
)
_TOKENS: Final = re.compile("|".join(f"({shown})" for shown, _ in _LOOSE))
_ANY_LINES: Final = r"(?:.*\n)*?"


def pattern_of(shown: str) -> "re.Pattern[str]":
    """Return the pattern of a block of output; a line with only … stands for any lines.

    Ids, times, durations and ports differ every time, so any of them matches.
    """
    lines = [line.rstrip() for line in shown.splitlines()]
    return re.compile("".join(_ANY_LINES if line == "…" else f" *{_line(line)} *\n" for line in lines))


def plain(printed: str) -> str:
    """Return what was printed, without control sequences and empty lines."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.replace("\r\n", "\n"))
    lines = [line.rstrip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)


def _line(line: str) -> str:
    parts, end = [], 0
    for token in _TOKENS.finditer(line.lstrip()):
        parts += [re.escape(line.lstrip()[end : token.start()]), _LOOSE[(token.lastindex or 1) - 1][1]]
        end = token.end()
    return "".join([*parts, re.escape(line.lstrip()[end:])])

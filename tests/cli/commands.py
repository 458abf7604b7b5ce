"""``pyoco-client`` in a process of its own, with flow files in the folder of a test."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HEAD = """\
import asyncio, threading
from pyoco import Flow, task
from pyoco_server import options, wait
"""
LIMIT_SEC = 90.0


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text((HEAD if name.endswith(".py") else "") + text)
    return name


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pyoco_server.cli.client", *args]


def call(folder: Path, *args: str, stdin: int = subprocess.DEVNULL) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    return subprocess.run(  # noqa: S603 our own command
        command(*args), cwd=folder, capture_output=True, text=True, timeout=LIMIT_SEC, check=False, stdin=stdin
    )


class Going:
    """A running command; stdout and stderr are one stream, unless stdout is redirected."""

    def __init__(self, process: "subprocess.Popen[str]", output: IO[str]) -> None:
        self.process = process
        self._output = output

    def read_until(self, text: str) -> str:
        """Wait for a line with this text, and return everything read on the way."""
        seen = ""
        for line in self._output:
            seen += line
            if text in line:
                return seen
        raise AssertionError(f"{text!r} never came; there was:\n{seen}")

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def rest(self, limit_sec: float = LIMIT_SEC) -> tuple[int, str]:
        """Wait for the exit code, and return the rest of the output."""
        code = self.process.wait(limit_sec)
        return code, self._output.read()


@contextmanager
def going(
    folder: Path, *args: str, stdin: int = subprocess.DEVNULL, stdout: IO[bytes] | None = None
) -> Iterator[Going]:
    process = subprocess.Popen(  # noqa: S603 our own command
        command(*args),
        cwd=folder,
        stdin=stdin,
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
        text=True,
    )
    with process:
        output = process.stderr if stdout else process.stdout
        assert output is not None
        try:
            yield Going(process, output)
        finally:
            process.kill()

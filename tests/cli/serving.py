"""Long-running commands in processes of their own."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.plain_http import NO_TLS

START_SEC = 90.0  # no measure of speed: many tests run at the same time


class Served(NamedTuple):
    """A running command, and the address of its gateway."""

    process: subprocess.Popen[bytes]
    url: str
    output: Path
    """The output as a file: a pipe would block when it is full, as no thread reads it."""

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal, wait, and return the exit code and the output."""
        self.process.send_signal(number)
        return self.process.wait(timeout=20), self.output.read_text(encoding="utf-8")


def free_port() -> int:
    """Return a free port that no other process is given before the command listens on it.

    The system gives ports from 32768 on to connections and to servers that ask for any port. Not from ``random``, whose
    seed is the same in all processes of the tests.
    """
    while True:
        port = 10_240 + secrets.randbelow(20_000)
        with contextlib.suppress(OSError), socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            return port


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pyoco_server.cli.server", *arguments]


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYOCO_")}
    return {**kept, "PYOCO_DURABILITY": "fast", **more}


def run_to_its_end(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 our own command
        command(*arguments),
        cwd=directory,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextlib.contextmanager
def serving(directory: Path, *arguments: str, port: int, **variables: str) -> Iterator[Served]:
    """Start a command, wait until its gateway answers, and kill it afterwards if it still runs."""
    output = directory / f"served-{port}.log"
    with output.open("wb") as writing:
        process = subprocess.Popen(  # noqa: S603 our own command
            command(*arguments),
            cwd=directory,
            env=clean_environment(**variables),
            stdout=writing,
            stderr=subprocess.STDOUT,
        )
    served = Served(process, f"http://127.0.0.1:{port}", output)
    try:
        until_healthy(served)
        yield served
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until_healthy(served: Served) -> None:
    deadline = time.monotonic() + START_SEC
    while time.monotonic() < deadline:
        if served.process.poll() is not None:
            raise AssertionError(f"it ended at once:\n{served.output.read_text(encoding='utf-8')}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{served.url}/health", timeout=2, verify=NO_TLS).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the gateway did not come up")


def run_status(url: str, run_id: str, *wanted: str, within_sec: float = 20.0) -> str:
    """Wait for one of these statuses of a run, and return it."""
    deadline = time.monotonic() + within_sec
    status = ""
    while time.monotonic() < deadline:
        status = str(httpx.get(f"{url}/runs/{run_id}", timeout=5, verify=NO_TLS).json()["status"])
        if status in wanted:
            return status
        time.sleep(0.05)
    raise AssertionError(f"the run is {status}, not one of {wanted}")

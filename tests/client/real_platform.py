"""The whole platform as users start it: NATS, gateway and a worker, by one command."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyoco_server.client import Client, GatewayUnreachableError

FLOWS = """\
import threading
from pyoco import Flow, task
from pyoco_server import wait


@task
def greet(name="world"):
    return f"hello {name}"


@task
def decide(approval):
    return ["decided", approval]


@task
def endless(ctx):
    while not ctx.is_cancelled:
        threading.Event().wait(0.01)


@task
def broken():
    raise RuntimeError("this never works")


hello = Flow("hello") >> greet
approval = Flow("approval") >> wait("approval", prompt="go on?") >> decide
forever = Flow("forever") >> endless
failing = Flow("failing") >> broken
"""


class Platform:
    """A ``pyoco-server dev`` in a folder; its data survives a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "flows.py").write_text(FLOWS)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "pyoco_server.cli.server", "dev", "flows.py", "--port", str(self.port)]
        environment = {**os.environ, "PYOCO_DATA_DIR": str(self._folder / "data")}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 our own command
                command, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        with Client(self.url, retries=0) as client:
            deadline = time.monotonic() + 60
            while not self._is_ready(client):
                assert self._process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.05)

    @staticmethod
    def _is_ready(client: Client) -> bool:
        try:
            return bool(client.workers())
        except GatewayUnreachableError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            finally:
                self._process.kill()
                self._process.wait()
                self._process = None


@contextlib.contextmanager
def platform(folder: Path) -> Iterator[Platform]:
    running = Platform(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()

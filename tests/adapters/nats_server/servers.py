"""Helpers: store data on a server, read it again, and run servers in other processes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest

from pyoco_server.adapters.nats_server import NatsServer
from tests.adapters.executor.leaks import is_gone, nothing_left_behind
from tests.waiting import wait_until

T = TypeVar("T")

STREAM = "EV"


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine, and see that it leaves no process, thread or open file behind."""
    with nothing_left_behind():
        return asyncio.run(main())


async def store(url: str, *payloads: bytes) -> None:
    """Publish to a stream, each message acknowledged."""
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        await js.add_stream(name=STREAM, subjects=["ev.>"])
        for payload in payloads:
            await js.publish("ev.1", payload)
    finally:
        await client.close()


async def stored(url: str) -> list[bytes]:
    """All messages of that stream, in order."""
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        last = (await js.stream_info(STREAM)).state.last_seq
        return [(await js.get_msg(STREAM, seq)).data or b"" for seq in range(1, last + 1)]
    finally:
        await client.close()


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, by the keys that stand for it."""
    return [record.__dict__["action"] for record in caplog.records if "action" in record.__dict__]


def signal_to(server: NatsServer, number: signal.Signals) -> int:
    """Send the process a signal; returns its id."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, number)
    return pid


async def kill_and_see_it_back(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    """SIGKILL the server and return when it is ready again."""
    before = actions(caplog).count("nats_server_restarted")
    signal_to(server, signal.SIGKILL)
    await wait_until(lambda: actions(caplog).count("nats_server_restarted") > before)


def left_in(directory: Path) -> set[str]:
    """The files and folders directly in a directory."""
    return {entry.name for entry in directory.iterdir()}


def announced(directory: Path) -> dict[str, list[str]]:
    """All addresses the server says it listens on."""
    (file,) = directory.glob("*.ports")
    addresses: dict[str, list[str]] = json.loads(file.read_text())
    return addresses


@contextmanager
def taken_port(port: int = 0) -> Iterator[int]:
    """A port on which another program listens."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        taken: int = listening.getsockname()[1]
        yield taken


_SUPERVISOR = """
import asyncio, signal, sys
from pathlib import Path
from pyoco_server.adapters.nats_server import NatsServer, ServerCommand, nats_bootstrap_command, nats_server_command

def orphanable():
    binary = nats_server_command().arguments[0]
    program = f"import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 0); os.execv({binary!r}, sys.argv)"
    return ServerCommand((sys.executable, "-c", program, "-c"), signal.SIGTERM)

COMMANDS = {"plain": nats_server_command, "bootstrap": nats_bootstrap_command, "orphanable": orphanable}

async def main():
    async with NatsServer(Path(sys.argv[1]), command=COMMANDS[sys.argv[2]]()) as server:
        print(server.pid, server.url, flush=True)
        await server.wait()

asyncio.run(main())
"""


class OtherProcess:
    """A process with a server of its own on a directory, to be killed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        pid, self.url = process.stdout.readline().split()
        self.server_pid = int(pid)
        self.pid = process.pid
        self._process = process

    def kill(self) -> None:
        """SIGKILL, so that it can do nothing about its server."""
        self._process.kill()
        self._process.wait()


@contextmanager
def other_process(directory: Path, kind: str = "plain") -> Iterator[OtherProcess]:
    """Have another process run a server. An orphanable one gets no signal when that process dies, as elsewhere."""
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _SUPERVISOR, str(directory), kind], stdout=subprocess.PIPE, text=True
    ) as process:
        other = OtherProcess(process)
        try:
            yield other
        finally:
            other.kill()
            if not is_gone(other.server_pid):
                with suppress(ProcessLookupError):
                    os.kill(other.server_pid, signal.SIGKILL)

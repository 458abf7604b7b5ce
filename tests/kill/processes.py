"""Our programs as processes of their own, and what is done to them."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx
from typing_extensions import override

from pyoco_server.adapters.nats_server import exec_with_parent
from tests.plain_http import NO_TLS

_STUB = str(Path(exec_with_parent.__file__).absolute())


async def eventually(
    holds: Callable[[], Awaitable[object]], what: Callable[[], str] | str, *, within: float = 30.0, pause: float = 0.02
) -> None:
    """Come back when it holds; AssertionError says what did not."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline, f"not within {within} s: {what if isinstance(what, str) else what()}"
        await asyncio.sleep(pause)


class Process:
    """A program with a log; it is killed when we die."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.name = name
        self.output = output
        self._process = process

    @classmethod
    def start(cls, name: str, command: Sequence[str], output: Path, *, cwd: Path, env: Mapping[str, str]) -> Self:
        """Run the command; what it prints is added to a file."""
        program = shutil.which(command[0])
        assert program is not None, f"there is no program {command[0]}"
        stub = [sys.executable, "-I", "-S", _STUB, str(os.getpid()), str(int(signal.SIGKILL))]
        with output.open("ab") as file:
            process = subprocess.Popen(  # noqa: S603 our own programs
                [*stub, program, *command[1:]],
                cwd=cwd,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        return cls(name, process, output)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL: it can do nothing about anything any more."""
        self.send(signal.SIGKILL)
        self._process.wait()

    async def exit_code(self, within: float = 20.0) -> int:
        """Wait for its end."""
        return await asyncio.to_thread(self._process.wait, within)

    async def ready(self, within: float = 30.0) -> None:
        """Wait until it does its work."""
        await eventually(self._is_up, lambda: f"{self.name} is ready\n{self.output.read_text()}", within=within)

    async def _is_up(self) -> bool:
        assert self.is_alive, f"{self.name} died at its start\n{self.output.read_text()}"
        return await self.is_ready()

    async def is_ready(self) -> bool:
        """Does it do its work?"""
        raise NotImplementedError

    def said(self, action: str) -> int:
        """How often its log has an action."""
        return self.output.read_text().count(f'"action": "{action}"')

    def memory(self) -> int:
        """How much memory it has, in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))


class WorkerProcess(Process):
    """A ``pyoco-worker`` of our own."""

    @override
    async def is_ready(self) -> bool:
        return self.said("worker_started") > 0


class GatewayProcess(Process):
    """A ``pyoco-server up`` of our own."""

    url: str = ""

    @override
    async def is_ready(self) -> bool:
        try:
            async with httpx.AsyncClient(timeout=5, verify=NO_TLS) as client:
                return (await client.get(f"{self.url}/health/ready")).is_success
        except httpx.TransportError:
            return False

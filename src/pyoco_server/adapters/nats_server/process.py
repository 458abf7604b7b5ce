"""The server's process: it ends when this process ends, together with all processes that it started."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pyoco_server.adapters.nats_server import exec_with_parent

_STUB = str(Path(exec_with_parent.__file__).absolute())


class ServerProcess:
    """A child process in a group of its own, with the processes that it starts."""

    def __init__(self, process: asyncio.subprocess.Process, program: str, stop_signal: signal.Signals) -> None:
        self.program = program
        self._process = process
        self._stop_signal = stop_signal

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        stop_signal: signal.Signals,
        output: BinaryIO,
        keep_open: int,
        environment: Mapping[str, str],
    ) -> "ServerProcess":
        """Run the command with its output in a file; it inherits ``keep_open``, an open file.

        If this process dies, Linux sends the command the signal that ``end`` sends: precisely, when the thread ends
        that runs this event loop.
        """
        stub = [sys.executable, "-I", "-S", _STUB, str(os.getpid()), str(int(stop_signal))]
        process = await asyncio.create_subprocess_exec(
            *stub,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            pass_fds=(keep_open,),
            # A group of its own: Ctrl-C in a terminal reaches only us, and we stop the server after its users.
            # Not by process_group, which uvloop does not support.
            start_new_session=True,
        )
        return cls(process, command[0], stop_signal)

    @property
    def pid(self) -> int:
        """Its process id, also that of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative if a signal ended it; None while it runs."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        code = self.exit_code
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"

    async def wait(self) -> None:
        """Return when it has ended."""
        await self._process.wait()

    async def end(self, timeout_sec: float) -> None:
        """Ask the group to end, kill it after ``timeout_sec``, and reap the process."""
        try:
            self._send(self._stop_signal)
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_sec):
                    await self._process.wait()
                    while self._send(0):  # noqa: ASYNC110 (no event reports the end of what it started)
                        await asyncio.sleep(0.005)
        finally:
            self._send(signal.SIGKILL)
            await self._process.wait()

    def _send(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

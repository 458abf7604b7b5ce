"""A worker under a supervisor: it reports its flows, begins when the supervisor says so, and ends with it.

They communicate over a socket. It closes when the supervisor ends, even by a crash, on every operating system; and as
it is neither stdin nor stdout, flows may read and print.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from pyoco_server.cli.shared.parsing import FAILED

BEGIN: Final = b"begin\n"
_LEAVE_SEC: Final = 5.0
"""The time for a worker to stop by itself when its supervisor, and perhaps NATS with it, has ended."""


class Report(msgspec.Struct, frozen=True):
    """The flows that a worker found."""

    origins: dict[str, str] = {}
    """The file of each flow."""
    error: str | None = None
    """Why it could not load them."""

    def line(self) -> bytes:
        """Encode the report."""
        return json.dumps({"origins": self.origins, "error": self.error}).encode() + b"\n"


class Supervisor:
    """The worker's end of the socket."""

    def __init__(self, descriptor: int) -> None:
        self._link = socket.socket(fileno=descriptor)
        self._link.set_inheritable(False)  # child processes of flows must not keep it open

    def refused(self, error: str) -> int:
        """Report why the worker cannot start; return the exit code."""
        self._send(Report(error=error))
        return FAILED

    def wait_to_begin(self, origins: Mapping[str, str]) -> None:
        """Report the flows, and wait for the message to begin; SystemExit if the supervisor ends before.

        From then on, the process ends when the supervisor does.
        """
        self._send(Report(origins=dict(origins)))
        received = b""
        while not received.endswith(BEGIN):
            piece = self._receive()
            if not piece:
                raise SystemExit(FAILED)
            received += piece
        threading.Thread(target=self._end_with_supervisor, name="pyoco-supervisor", daemon=True).start()

    def _send(self, report: Report) -> None:
        with contextlib.suppress(OSError):  # the supervisor has ended: the next read ends the worker
            self._link.sendall(report.line())

    def _receive(self) -> bytes:
        try:
            return self._link.recv(4096)
        except OSError:
            return b""

    def _end_with_supervisor(self) -> None:
        while self._receive():
            pass
        for _ in range(2):  # the second one releases the runs at once
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LEAVE_SEC)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

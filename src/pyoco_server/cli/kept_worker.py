"""A worker that somebody else keeps: it says which flows it found, begins when told to, and ends with its keeper.

The two talk over a socket. Its closing is how the worker learns that its keeper is gone, however suddenly, on every
system; and since it is neither stdin nor stdout, flows may read and print what they like.
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

from pyoco_server.cli.parsing import FAILED

BEGIN: Final = b"begin\n"
_LEAVE_SEC: Final = 5.0
"""So much time a worker has to leave by itself when its keeper, and with that perhaps its NATS, is gone."""


class Report(msgspec.Struct, frozen=True):
    """What a worker found where it looked for flows."""

    origins: dict[str, str] = {}
    """The file of each flow."""
    error: str | None = None
    """Why it cannot work."""

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps({"origins": self.origins, "error": self.error}).encode() + b"\n"


class Keeper:
    """The worker's end of the socket."""

    def __init__(self, descriptor: int) -> None:
        self._link = socket.socket(fileno=descriptor)
        self._link.set_inheritable(False)  # what flows start has no part in it

    def refused(self, error: str) -> int:
        """Say why there will be no worker; the exit code."""
        self._tell(Report(error=error))
        return FAILED

    def await_word(self, origins: Mapping[str, str]) -> None:
        """Say what was found, and wait until it is this worker's turn; SystemExit if that will never be.

        From then on the process ends when the keeper does.
        """
        self._tell(Report(origins=dict(origins)))
        heard = b""
        while not heard.endswith(BEGIN):
            piece = self._hear()
            if not piece:
                raise SystemExit(FAILED)
            heard += piece
        threading.Thread(target=self._end_with_it, name="pyoco-keeper", daemon=True).start()

    def _tell(self, report: Report) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the next word is awaited in vain
            self._link.sendall(report.line())

    def _hear(self) -> bytes:
        try:
            return self._link.recv(4096)
        except OSError:
            return b""

    def _end_with_it(self) -> None:
        while self._hear():
            pass
        for _ in range(2):  # the second one hands back what is in hand at once
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LEAVE_SEC)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

"""A terminal to run the command in."""

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

from tests.cli.commands import command


class Screen:
    """What a command draws on a real terminal."""

    def __init__(self, folder: Path, *args: str, columns: int = 120) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"}
        self.process = subprocess.Popen(  # noqa: S603 our own command
            command(*args), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.drawn = b""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._ours, 65_536):
                self.drawn += piece
        except OSError:  # the other end is closed
            pass

    def end(self) -> tuple[int, str]:
        """The exit code, and all that was drawn, without colours and movements."""
        code = self.process.wait(30)
        self._reading.join(30)
        os.close(self._ours)
        return code, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.drawn.decode())

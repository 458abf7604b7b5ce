"""A terminal for the command."""

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

from tests.cli.commands import LIMIT_SEC, command


class Screen:
    """A command on a real terminal, and what it draws."""

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
        """Wait for the exit code, and return it with the text, without control sequences."""
        code = self.process.wait(LIMIT_SEC)
        self._reading.join(30)
        os.close(self._ours)
        return code, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.drawn.decode())

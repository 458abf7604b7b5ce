"""Lines somebody types while a run goes on, read by a thread of their own."""

import os
import sys
import threading
from collections.abc import Callable


class TerminalLines:
    """Hands over each line typed; None when there will be no more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hand_over: Callable[[str | None], None] | None = None

    @classmethod
    def of_stdin(cls) -> "TerminalLines | None":
        """Those of stdin, if a person may be sitting there."""
        return cls(sys.stdin.fileno()) if sys.stdin is not None and sys.stdin.isatty() else None

    def start(self, hand_over: Callable[[str | None], None]) -> None:
        """Begin to read, if that has not begun already; not before it is needed, for the terminal is the user's."""
        if self._hand_over is None:
            self._hand_over = hand_over
            threading.Thread(target=self._read, args=(hand_over,), name="pyoco-terminal", daemon=True).start()

    def _read(self, hand_over: Callable[[str | None], None]) -> None:
        """Read past Python's buffered stdin: its lock, held by a daemon thread, would abort the interpreter's end."""
        pending = b""
        while True:
            try:
                piece = os.read(self._descriptor, 65_536)
            except OSError:  # the terminal is gone
                piece = b""
            if not piece:
                hand_over(None)
                return
            *lines, pending = (pending + piece).split(b"\n")
            for text in lines:
                hand_over(text.decode(errors="replace").strip())

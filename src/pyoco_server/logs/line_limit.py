"""Bounds the number of equal log lines: a client that repeats a mistake, or an attack, must not fill the disk."""

import logging
import time
from collections import Counter
from typing import Final

from typing_extensions import override

MOST_LINES: Final = 100
"""The most lines of one kind that are written in ``WINDOW_SEC``."""
WINDOW_SEC: Final = 60.0
LAST_NOTE: Final = "more of these lines are not written in this minute"


class LineLimit:
    """Counts the lines of each kind in the current window."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._lines: Counter[str] = Counter()

    def position(self, kind: str) -> int:
        """Count a line; returns its position among those of its kind in this window, from 1."""
        now = time.monotonic()
        if now - self._since >= WINDOW_SEC:
            self._since = now
            self._lines.clear()
        self._lines[kind] += 1
        return self._lines[kind]


class LimitedLines(logging.Filter):
    """Drops lines of a logger beyond ``MOST_LINES`` of one kind in a minute; the last one says so.

    A kind is a level and the first line of the text: what follows it names objects, which differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = LineLimit()

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        text = str(record.msg).partition("\n")[0][:200]
        position = self._limit.position(f"{record.levelno} {text}")
        if position == MOST_LINES:
            record.__dict__["note"] = LAST_NOTE
        return position <= MOST_LINES


def limit_lines(*names: str) -> None:
    """Bound the lines of these loggers, which other libraries write to."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(known, LimitedLines) for known in logger.filters):
            logger.addFilter(LimitedLines())

"""Is what a command printed what the page shows? Ids, times, durations and ports are others every time."""

import re
from typing import Final

_LOOSE: Final = (
    (r"[0-9a-f]{8}…", r"[0-9a-f]{8}-[0-9a-f-]{27}"),  # an id, shortened on the page
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
    (r"\d\d:\d\d:\d\d", r"\d\d:\d\d:\d\d"),
    (r"\d+\.\d+ ?s\b", r"\d+\.\d+ ?s"),
    (r"127\.0\.0\.1:\d+", r"127\.0\.0\.1:\d+"),
    (r"…", r".*"),
    (r" +", r" +"),
)
_TOKENS: Final = re.compile("|".join(f"({shown})" for shown, _ in _LOOSE))
_ANY_LINES: Final = r"(?:.*\n)*?"


def pattern_of(shown: str) -> "re.Pattern[str]":
    """What a block of output stands for; a line with nothing but … stands for any lines."""
    lines = [line.rstrip() for line in shown.splitlines()]
    return re.compile("".join(_ANY_LINES if line == "…" else f" *{_line(line)} *\n" for line in lines))


def plain(printed: str) -> str:
    """What was printed, without what only a terminal cares for."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.replace("\r\n", "\n"))
    lines = [line.rstrip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)


def _line(line: str) -> str:
    parts, end = [], 0
    for token in _TOKENS.finditer(line.lstrip()):
        parts += [re.escape(line.lstrip()[end : token.start()]), _LOOSE[(token.lastindex or 1) - 1][1]]
        end = token.end()
    return "".join([*parts, re.escape(line.lstrip()[end:])])

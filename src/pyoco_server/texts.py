"""Texts that others write, such as the messages of exceptions: made to fit into the log, and into JSON at all."""

import json
from typing import Final

LONGEST_MESSAGE: Final = 4_000
"""Characters that are kept of a message; one commit repeats it: attempt, node, blocks around it, run."""
LONGEST_TRACE: Final = 16_000
"""Characters that are kept of a traceback."""
_SHORTEST: Final = 80


def shortened(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return the beginning and the end of a text, with the number of characters that are left out between them.

    At most ``most`` characters are kept, and fewer if JSON needs more than ``2 * most`` bytes for them. Half surrogate
    pairs, which UTF-8 cannot hold, are spelt out.
    """
    text = str.__str__(text)  # no subclass, whose methods are code of users
    kept = min(len(text), most)
    while True:
        shown = writable(text if kept == len(text) else _head_and_tail(text, kept))
        if kept <= _SHORTEST or len(json.dumps(shown, ensure_ascii=False).encode()) <= 2 * most:
            return shown
        kept //= 2


def _head_and_tail(text: str, kept: int) -> str:
    tail = kept // 3
    return f"{text[: kept - tail]} […{len(text) - kept:,} characters left out…] {text[len(text) - tail :]}"


def writable(text: str) -> str:
    """Return the text, with what UTF-8 cannot hold spelt out."""
    return str.encode(text, "utf-8", "backslashreplace").decode("utf-8")

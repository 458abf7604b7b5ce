"""Parses server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BREAK: Final = re.compile(r"\r\n|\n|\r")
MOST_CHARS: Final = 64 * 1024 * 1024
"""The most characters of one event; a gateway never sends more."""


class ServerEvent(NamedTuple):
    """One event."""

    name: str
    data: str


class EventReader:
    """Takes chunks of bytes and returns whole events."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._rest = ""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that are complete now; ValueError if one is too long."""
        text = self._rest + self._decode.decode(chunk)
        held = "\r" if text.endswith("\r") else ""  # the other half of the line break may follow
        *lines, rest = _BREAK.split(text.removesuffix(held))
        self._rest = rest + held
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event
        if self._size + len(self._rest) > MOST_CHARS:
            raise ValueError("an event is too long")

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._finished()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
            self._size += len(value)
        return None

    def _finished(self) -> ServerEvent | None:
        event = ServerEvent(self._name or "message", "\n".join(self._data)) if self._data else None
        self._name, self._data, self._size = "", [], 0
        return event

"""Server-sent events, read as they come: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BREAK: Final = re.compile(r"\r\n|\n|\r")
MOST_CHARS: Final = 64 * 1024 * 1024
"""One event of this length is not one of ours."""


class ServerEvent(NamedTuple):
    """One event."""

    name: str
    data: str


class EventReader:
    """Takes bytes as the network cuts them, gives events as the sender meant them."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._rest = ""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that are complete now; ValueError if something that is none never ends."""
        text = self._rest + self._decode.decode(chunk)
        held = "\r" if text.endswith("\r") else ""  # the other half of the line break may be on its way
        *lines, rest = _BREAK.split(text.removesuffix(held))
        self._rest = rest + held
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event
        if self._size + len(self._rest) > MOST_CHARS:
            raise ValueError("an event that never ends")

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

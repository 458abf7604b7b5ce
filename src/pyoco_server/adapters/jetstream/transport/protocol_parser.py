"""Parses what the server sends: whole messages here, everything else by the library.

Nearly everything the server sends is a message, and most messages arrive whole. The library matches a pattern for each
kind of line, and handles every message in two steps and a coroutine, which cost as much as all other work of a gateway
that follows runs.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

_END: Final = b"\r\n"
_PLAIN: Final = b"MSG"
_WITH_HEADERS: Final = b"HMSG"
_MESSAGES: Final = (_PLAIN + b" ", _WITH_HEADERS + b" ")
_WORDS: Final = (4, 5)
"""The number of words on such a line, the size of the headers not counted: a reply subject is optional."""
_NO_HEADER_SIZE: Final = {_PLAIN: b"0", _WITH_HEADERS: b""}
"""What a line without a size of headers means: that there are none, or that the line is malformed."""

Dispatch = Callable[[int, bytes, bytes, bytes, bytes | None], bool]
"""Handles a message at once if its subscription is an inline one: its number, subject, reply, data, headers."""

Process = Callable[[int, bytes, bytes, bytes, bytes | None], Coroutine[Any, Any, None]]
"""The library's way to handle a message."""


class LibraryParser(Protocol):
    """The part of the library's parser that is used here."""

    state: int
    needed: int
    buf: bytearray

    async def parse(self, data: bytes = b"") -> None:
        """Parse the next piece."""
        ...

    def reset(self) -> None:
        """Forget what has arrived."""
        ...


class MessageParser:
    """Takes the place of the library's parser, which it passes everything to that is not a whole message."""

    def __init__(self, library: LibraryParser, *, between_messages: int, dispatch: Dispatch, process: Process) -> None:
        """``between_messages`` is the library's state when it expects the beginning of a line."""
        self._library = library
        self._between_messages = between_messages
        self._dispatch = dispatch
        self._process = process

    @property
    def unparsed(self) -> bytes:
        """The beginning of something whose rest has not arrived."""
        return bytes(self._library.buf)

    def reset(self) -> None:
        """Forget what has arrived: a new connection begins."""
        self._library.reset()

    async def parse(self, data: bytes = b"") -> None:
        """Parse the next piece of what the server sends."""
        library = self._library
        while data:
            if library.state == self._between_messages:
                data, library.buf = (bytes(library.buf) + data if library.buf else data), bytearray()
                data = data[await self._parse_whole(data) :]
                line_end = data.find(_END)
                most = len(data) if line_end < 0 else line_end + len(_END)
            else:  # the rest of a message whose beginning the library has
                most = library.needed + len(_END) - len(library.buf)
            piece, data = data[:most], data[most:]
            if piece:
                await library.parse(piece)
            if data and library.buf:  # a line that the library cannot parse either
                piece, data = data, b""
                await library.parse(piece)

    async def _parse_whole(self, data: bytes) -> int:
        """Parse messages up to the first line that is not one or is incomplete; return where that line begins."""
        begin = 0
        while data.startswith(_MESSAGES, begin) and (line_end := data.find(_END, begin)) > 0:
            words = data[begin:line_end].split()
            # The line has a size of the headers only if there are headers.
            stated = (
                words.pop(-2) if words[0] == _WITH_HEADERS and len(words) > _WORDS[0] else _NO_HEADER_SIZE[words[0]]
            )
            if len(words) not in _WORDS or not (stated.isdigit() and words[2].isdigit() and words[-1].isdigit()):
                break  # the library reports what is wrong with it
            begins, number, size, header_size = line_end + len(_END), int(words[2]), int(words[-1]), int(stated)
            end = begins + size
            if header_size > size or end + len(_END) > len(data):
                break
            headers = data[begins : begins + header_size] if header_size else None
            message, reply = data[begins + header_size : end], words[3] if len(words) == _WORDS[1] else b""
            begin = end + len(_END)
            if not self._dispatch(number, words[1], reply, message, headers):
                await self._process(number, words[1], reply, message, headers)
        return begin

"""What the server says, taken apart.

Nearly all of it are messages, and most of them come whole. The library tries a pattern for each kind of line, at the
beginning of what is left, and takes every message in two steps and by a coroutine: that was as much work as anything
else a gateway does with what it hears.
"""

from typing import Final, Protocol

from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser
from typing_extensions import override

_END: Final = b"\r\n"
_PLAIN: Final = b"MSG"
_WITH_HEADERS: Final = b"HMSG"
_MESSAGES: Final = (_PLAIN + b" ", _WITH_HEADERS + b" ")
_WORDS: Final = (4, 5)
"""How many words such a line has, but for the size of headers: there may be a subject to answer to."""
_NONE_TOLD: Final = {_PLAIN: b"0", _WITH_HEADERS: b""}
"""What it means for a line to tell no size of headers: that there are none, or that something is wrong."""


class Hearer(Protocol):
    """Who is told what was said."""

    def heard(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
        """Take a message for a subscription, if it is one that takes them at once."""
        ...

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None: ...


class MessageParser(Parser):
    """Takes messages that have come whole, one after the other; all else is left to the library."""

    def __init__(self, hearer: Hearer) -> None:
        super().__init__(hearer)
        self._hearer = hearer

    @override
    async def parse(self, data: bytes = b"") -> None:
        """Take the next piece of what the server says."""
        while data:
            if self.state == AWAITING_CONTROL_LINE:
                data, self.buf = (bytes(self.buf) + data if self.buf else data), bytearray()
                data = data[await self._take_whole(data) :]
                line_end = data.find(_END)
                most = len(data) if line_end < 0 else line_end + len(_END)
            else:  # the rest of a message whose beginning the library has
                most = self.needed + len(_END) - len(self.buf)
            piece, data = data[:most], data[most:]
            if piece:
                await super().parse(piece)
            if data and self.buf:  # a line the library makes nothing of either
                piece, data = data, b""
                await super().parse(piece)

    async def _take_whole(self, data: bytes) -> int:
        """Take messages up to the first of which a part is missing, or that is none; returns where that begins."""
        hearer, begin = self._hearer, 0
        while data.startswith(_MESSAGES, begin) and (line_end := data.find(_END, begin)) > 0:
            words = data[begin:line_end].split()
            # Of what a line says there is the size of the headers only if it tells of any.
            told = words.pop(-2) if words[0] == _WITH_HEADERS and len(words) > _WORDS[0] else _NONE_TOLD[words[0]]
            if len(words) not in _WORDS or not (told.isdigit() and words[2].isdigit() and words[-1].isdigit()):
                break  # the library says what is wrong with it
            begins, number, size, header_size = line_end + len(_END), int(words[2]), int(words[-1]), int(told)
            end = begins + size
            if header_size > size or end + len(_END) > len(data):
                break
            headers = data[begins : begins + header_size] if header_size else None
            message, reply = data[begins + header_size : end], words[3] if len(words) == _WORDS[1] else b""
            begin = end + len(_END)
            if not hearer.heard(number, words[1], reply, message, headers):
                await hearer._process_msg(number, words[1], reply, message, headers)  # noqa: SLF001 the library's own way
        return begin

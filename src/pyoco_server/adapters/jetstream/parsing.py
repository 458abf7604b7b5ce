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
_PLAIN_WORDS: Final = (4, 5)
_HEADERS_WORDS: Final = (5, 6)
"""How many words such a line has, without and with a subject to answer to."""


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
        taken = 0
        if not self.buf and self.state == AWAITING_CONTROL_LINE:
            taken = await self._take_whole(data)
        if taken < len(data):
            await super().parse(data[taken:])

    async def _take_whole(self, data: bytes) -> int:
        """Take messages up to the first of which a part is missing, or that is none; returns where that begins."""
        hearer, begin = self._hearer, 0
        while (line_end := data.find(_END, begin)) > 0:
            words = data[begin:line_end].split()
            try:
                if words[0] == _PLAIN and len(words) in _PLAIN_WORDS:
                    header_size = 0
                elif words[0] == _WITH_HEADERS and len(words) in _HEADERS_WORDS:
                    header_size = int(words.pop(-2))
                else:
                    break
                number, size = int(words[2]), int(words[-1])
            except (ValueError, IndexError):  # the library says what is wrong with it
                break
            body = line_end + len(_END)
            end = body + size
            if end + len(_END) > len(data):
                break
            headers = data[body : body + header_size] if header_size else None
            message = data[body + header_size : end]
            reply = words[3] if len(words) == _PLAIN_WORDS[1] else b""
            begin = end + len(_END)
            if not hearer.heard(number, words[1], reply, message, headers):
                await hearer._process_msg(number, words[1], reply, message, headers)  # noqa: SLF001 the library's own way
        return begin

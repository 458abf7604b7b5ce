"""The parser of whole messages finds what the library's parser finds, however the bytes are cut on the way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from pyoco_server.adapters.jetstream.transport.protocol_parser import MessageParser

INLINE = 1
"""The number of the subscription whose messages are dispatched inline."""


class Listener:
    """Records everything that a parser dispatches, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self.inline = 0

    def dispatch(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
        if number != INLINE:
            return False
        self.inline += 1
        self.all.append(("message", number, subject, reply, data, headers))
        return True

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.all.append(("message", sid, bytes(subject), bytes(reply), data, headers or None))

    async def _process_ping(self) -> None:
        self.all.append(("ping",))

    async def _process_pong(self) -> None:
        self.all.append(("pong",))

    async def _process_err(self, text: str) -> None:
        self.all.append(("error", text))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.all.append(("info", info))

    def parser(self) -> MessageParser:
        return MessageParser(
            Parser(self),
            between_messages=AWAITING_CONTROL_LINE,
            dispatch=self.dispatch,
            process=self._process_msg,
        )


def message(subject: str, number: int, reply: str, headers: bytes, data: bytes) -> bytes:
    to = f" {reply}" if reply else ""
    if not headers:
        return b"MSG %b %d%b %d\r\n%b\r\n" % (subject.encode(), number, to.encode(), len(data), data)
    size = len(headers) + len(data)
    line = b"HMSG %b %d%b %d %d\r\n" % (subject.encode(), number, to.encode(), len(headers), size)
    return line + headers + data + b"\r\n"


MESSAGES = st.builds(
    message,
    st.sampled_from(["a", "pyoco.events.run-1", "MSG", "$JS.ACK.x"]),
    st.sampled_from([INLINE, 2, 345]),
    st.sampled_from(["", "_INBOX.x.1"]),
    st.sampled_from([b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"MSG a 1 1\r\nx\r\n", b"x" * 5_000])),
)
SENT = st.one_of(
    MESSAGES, st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'No'\r\n", b'INFO {"max_payload":1}\r\n'])
)


def parse(parser: MessageParser | Parser, pieces: list[bytes]) -> None:
    """Parse all pieces; no step waits for anything."""

    async def all_of_it() -> None:
        for piece in pieces:
            await parser.parse(piece)

    with pytest.raises(StopIteration):
        all_of_it().send(None)
    unparsed = parser.unparsed if isinstance(parser, MessageParser) else parser.buf
    assert unparsed == b"", "some bytes were not parsed"


def found_by_library(pieces: list[bytes]) -> list[tuple[Any, ...]]:
    listener = Listener()
    parse(Parser(listener), pieces)
    return listener.all


def found_by_ours(pieces: list[bytes]) -> Listener:
    listener = Listener()
    parse(listener.parser(), pieces)
    return listener


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(SENT, min_size=1, max_size=8), st.lists(st.integers(0, 100_000), max_size=6))
def test_parser_finds_what_the_library_finds(sent: list[bytes], places: list[int]) -> None:
    pieces = cut(b"".join(sent), places)
    assert found_by_ours(pieces).all == found_by_library(pieces)


ALL_KINDS = b"".join(
    [
        message("a", INLINE, "", b"", b"MSG b 1 1\r\nx\r\n"),
        message("a", 2, "to", b"NATS/1.0\r\n\r\n", b"HMSG\r\n"),
        b"PING\r\n",
        message("a", INLINE, "to", b"", b""),
        b"+OK\r\n",
        message("a", INLINE, "", b"NATS/1.0\r\n\r\n", b"PING\r\n"),
    ]
)


def test_parser_accepts_cuts_at_any_two_places() -> None:
    expected = found_by_library([ALL_KINDS])
    for first in range(len(ALL_KINDS)):
        for second in range(first, len(ALL_KINDS)):
            pieces = [ALL_KINDS[:first], ALL_KINDS[first:second], ALL_KINDS[second:]]
            assert found_by_ours(pieces).all == expected, pieces


def test_parser_dispatches_whole_messages_inline() -> None:
    listener = found_by_ours([message("a", INLINE, "", b"", b"x") * 3 + b"PING\r\n"])
    assert listener.inline == 3
    assert [what for what, *_ in listener.all] == ["message"] * 3 + ["ping"]


def test_parser_dispatches_inline_after_a_cut_message_and_after_another_line() -> None:
    one = message("a", INLINE, "", b"", b"some data")
    sent = one + b"PING\r\n" + one * 5
    listener = found_by_ours([sent[:7], sent[7:25], sent[25:80], sent[80:]])
    assert len(listener.all) == 7
    assert listener.inline == 6


def test_reset_parser_forgets_an_incomplete_message() -> None:
    listener = Listener()
    parser = listener.parser()
    with pytest.raises(StopIteration):
        parser.parse(b"MSG a 1 5\r\nab").send(None)
    parser.reset()
    parse(parser, [b"PING\r\n"])
    assert listener.all == [("ping",)]


@pytest.mark.parametrize(
    "sent",
    [
        b"MSG a one 1\r\nx\r\n",
        b"MSG a 1 -15\r\nxx\r\n",
        b"MSG a 1 +1\r\nx\r\n",
        b"MSG a 1 1_0\r\n0123456789\r\n",
        b" MSG a 1 1\r\nx\r\n",
        b"HMSG a 1 -3 2\r\nxx\r\n",
        b"MSG a 1\r\n",
        b"HMSG a 1 2\r\n",
        b"MSG a 1 r 1 1\r\nx\r\n",
        b"\r\n",
        b"NO\r\n",
    ],
)
def test_malformed_line_ends_the_connection(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(Listener().parser(), [sent])

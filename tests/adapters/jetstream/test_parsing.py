"""What the server says is heard as the library hears it, however it is cut on the way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from pyoco_server.adapters.jetstream.parsing import MessageParser

AT_ONCE = 1
"""The subscription whose messages are taken where they are read."""


class Listener:
    """Writes down everything it hears, in the order it hears it."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self.at_once = 0

    def heard(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
        if number != AT_ONCE:
            return False
        self.at_once += 1
        self.all.append(("message", number, subject, reply, data, headers))
        return True

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.all.append(("message", sid, bytes(subject), bytes(reply), data, headers or None))

    async def _process_ping(self) -> None:
        self.all.append(("ping",))

    async def _process_pong(self) -> None:
        self.all.append(("pong",))

    async def _process_err(self, told: str) -> None:
        self.all.append(("error", told))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.all.append(("info", info))


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
    st.sampled_from([AT_ONCE, 2, 345]),
    st.sampled_from(["", "_INBOX.x.1"]),
    st.sampled_from([b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"]),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"MSG a 1 1\r\nx\r\n", b"x" * 5_000])),
)
SAID = st.one_of(
    MESSAGES, st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'No'\r\n", b'INFO {"max_payload":1}\r\n'])
)


def hear(parser: Parser, listener: Listener, pieces: list[bytes]) -> list[tuple[Any, ...]]:
    """What is heard of it; nobody here has to be waited for."""

    async def all_of_it() -> None:
        for piece in pieces:
            await parser.parse(piece)

    with pytest.raises(StopIteration):
        all_of_it().send(None)
    assert parser.buf == b"", "something was said, and not heard"
    return listener.all


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(SAID, min_size=1, max_size=8), st.lists(st.integers(0, 100_000), max_size=6))
def test_it_hears_what_the_library_hears(said: list[bytes], places: list[int]) -> None:
    pieces = cut(b"".join(said), places)
    ours, theirs = Listener(), Listener()
    assert hear(MessageParser(ours), ours, pieces) == hear(Parser(theirs), theirs, pieces)


ALL_KINDS = b"".join(
    [
        message("a", AT_ONCE, "", b"", b"MSG b 1 1\r\nx\r\n"),
        message("a", 2, "to", b"NATS/1.0\r\n\r\n", b"HMSG\r\n"),
        b"PING\r\n",
        message("a", AT_ONCE, "to", b"", b""),
        b"+OK\r\n",
        message("a", AT_ONCE, "", b"NATS/1.0\r\n\r\n", b"PING\r\n"),
    ]
)


def test_it_may_be_cut_at_any_two_places() -> None:
    theirs = Listener()
    expected = hear(Parser(theirs), theirs, [ALL_KINDS])
    for first in range(len(ALL_KINDS)):
        for second in range(first, len(ALL_KINDS)):
            ours = Listener()
            pieces = [ALL_KINDS[:first], ALL_KINDS[first:second], ALL_KINDS[second:]]
            assert hear(MessageParser(ours), ours, pieces) == expected, pieces


def test_whole_messages_are_taken_where_they_are_read() -> None:
    listener = Listener()
    hear(MessageParser(listener), listener, [message("a", AT_ONCE, "", b"", b"x") * 3 + b"PING\r\n"])
    assert listener.at_once == 3
    assert [what for what, *_ in listener.all] == ["message"] * 3 + ["ping"]


def test_so_are_those_behind_one_that_was_cut_and_behind_another_line() -> None:
    listener, one = Listener(), message("a", AT_ONCE, "", b"", b"some data")
    parser = MessageParser(listener)
    said = one + b"PING\r\n" + one * 5
    hear(parser, listener, [said[:7], said[7:25], said[25:80], said[80:]])
    assert len(listener.all) == 7
    assert listener.at_once == 6


@pytest.mark.parametrize(
    "said",
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
def test_what_makes_no_sense_ends_the_connection(said: bytes) -> None:
    with pytest.raises(ProtocolError):
        hear(MessageParser(listener := Listener()), listener, [said])

"""Server-sent events in chunks of any size."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.client import sse as event_reader
from pyoco_server.client.sse import EventReader, ServerEvent

STREAM = (
    "\ufeff: a comment\n\n"
    'event: snapshot\nid: 7\ndata: {"a":\ndata: 1}\n\n'
    "event: heartbeat\r\ndata:{}\r\n\r\n"
    "retry: 3\rdata: é\r\r"
    "event: empty\n\n"
    "data\n\n"
    "event: cut off\ndata: not complete"
)
EVENTS = [
    ServerEvent("snapshot", '{"a":\n1}'),
    ServerEvent("heartbeat", "{}"),
    ServerEvent("message", "é"),
    ServerEvent("message", ""),
]


def read(*chunks: bytes) -> list[ServerEvent]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


def test_events_in_one_chunk() -> None:
    assert read(STREAM.encode()) == EVENTS


def test_byte_by_byte() -> None:
    assert read(*(bytes([byte]) for byte in STREAM.encode())) == EVENTS


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=6))
def test_cut_anywhere(cuts: list[int]) -> None:
    data = STREAM.encode()
    edges = [0, *sorted(cuts), len(data)]
    assert read(*(data[begin:end] for begin, end in itertools.pairwise(edges))) == EVENTS


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert read(b"data: \xff\xfe\n\n") == [ServerEvent("message", "\ufffd\ufffd")]


@pytest.mark.parametrize("chunk", [b"x" * 60, b"data: " + b"x" * 60 + b"\n"])
def test_an_event_that_never_ends_is_not_kept(monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> None:
    monkeypatch.setattr(event_reader, "MOST_CHARS", 100)
    with pytest.raises(ValueError, match="too long"):
        read(*[chunk] * 10)

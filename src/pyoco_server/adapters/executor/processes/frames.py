"""The format of messages between parent and child: length, kind, payload.

Both sides use this module. It imports little, because each import delays the start of a child.
"""

import os
import struct
from collections.abc import Iterator
from enum import IntEnum

HEADER = struct.Struct("!QB")

# Below this size it is cheaper to copy header and payload together than to write twice.
JOIN_BELOW = 64 * 1024


class Kind(IntEnum):
    """What a message is. Payloads are pickles."""

    # To the child.
    SETUP = 1  # once, first: Setup
    CALL = 2  # the pickled function, followed by the pickled (args, kwargs)
    CANCEL = 3  # nothing: the running call should stop; or "flag": only set its flag
    TIMED_CALL = 4  # as CALL; the child reports when the function begins

    # To the parent.
    SHIELDED = 7  # nothing: the call is in a section that must finish
    UNSHIELDED = 8  # nothing: the section has ended
    BEGUN = 9  # nothing: all is loaded, and the function is called now; only for a TIMED_CALL
    MESSAGE = 10  # any object the function sent
    RETURNED = 11  # the result
    RAISED = 12  # an exception, as packed by ``errors_in_transit``
    REFUSED = 13  # (what, reason): something could not be loaded or pickled
    TOO_LARGE = 14  # the size of a result or exception


def frame(kind: Kind, payload: bytes) -> tuple[bytes, ...]:
    """The pieces to write, in order."""
    header = HEADER.pack(len(payload), kind)
    return (header + payload,) if len(payload) < JOIN_BELOW else (header, payload)


class FrameReader:
    """Cuts a stream of bytes that arrives in arbitrary pieces into messages."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Return the messages that this piece completes. Raises ``ValueError`` for one that is too large."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            length, kind = HEADER.unpack_from(self._buffer)
            if length > self._max_bytes:
                raise ValueError(f"A message claims to have {length} bytes, the limit is {self._max_bytes}.")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[HEADER.size : end])
            del self._buffer[:end]
            yield Kind(kind), payload


def read_frame(fd: int) -> tuple[Kind, bytearray]:
    """Block until one whole message has arrived. Raises ``EOFError`` when the other side is gone."""
    length, kind = HEADER.unpack(_read_exactly(fd, HEADER.size))
    return Kind(kind), _read_exactly(fd, length)


def write_frame(fd: int, kind: Kind, payload: bytes) -> None:
    """Block until the whole message is written. Raises ``OSError`` when the other side is gone."""
    for piece in frame(kind, payload):
        view = memoryview(piece)
        while view:
            view = view[os.write(fd, view) :]


def _read_exactly(fd: int, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = os.readv(fd, [view])
        if count == 0:
            raise EOFError
        view = view[count:]
    return data

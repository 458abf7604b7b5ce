"""KV buckets: keys are read, and written by compare-and-set."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from nats.js.api import Header

from pyoco_server.adapters.jetstream.durability.connection import Connection, message_size
from pyoco_server.adapters.jetstream.primitives.names import kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.client import parsed_headers
from pyoco_server.app.ports import TooLargeError

_OPERATION: Final = "KV-Operation"
_REMOVED: Final = {"DEL", "PURGE"}
_LIMIT_MARKER: Final = "Nats-Marker-Reason"
_FORBIDDEN: Final = "Pyoco-Forbidden"
_MARKS: Final = (_OPERATION.encode(), _LIMIT_MARKER.encode())


class KvEntry(NamedTuple):
    """The value of a key; ``data`` is None if it was deleted, which has a revision too."""

    data: bytes | None
    revision: int
    is_forbidden: bool = False
    """Whether the key must not get its first value: see :meth:`Bucket.forbid`."""


NOTHING: Final = KvEntry(None, 0)


class Bucket:
    """A KV bucket. The caller has checked that keys are tokens."""

    def __init__(self, connection: Connection, bucket: str) -> None:
        self._bucket = bucket
        self._connection = connection
        self._reader = StreamReader(connection, kv_stream(bucket))
        self._leader = StreamReader(connection, kv_stream(bucket), leader=True)

    async def look(self, key: str, *, newest: bool = False) -> KvEntry:
        """Return the value of the key. With several replicas it may be slightly old, unless ``newest``."""
        reader = self._leader if newest else self._reader
        found = await reader.last(kv_subject(self._bucket, key))
        return NOTHING if found is None else entry_of(found)

    async def all(self) -> dict[str, bytes]:
        """Return the values of all keys, in the order of the keys."""
        subject, start, found = kv_subject(self._bucket, ">"), 1, dict[str, bytes | None]()
        while True:
            page = await self._reader.page(subject, start=start)
            for message in page.messages:
                found[message.subject.removeprefix(kv_subject(self._bucket, ""))] = entry_of(message).data
            if not page.messages or page.left == 0:
                return {key: data for key, data in sorted(found.items()) if data is not None}
            start = page.messages[-1].sequence + 1

    async def put(self, key: str, data: bytes, *, after: int, is_urgent: bool = True) -> int:
        """Write the key if it is still at that revision (0: never written), and return the new one; else ChangedError.

        TooLargeError if the bucket rejects the size; UnavailableError if the outcome is unknown. If it is not urgent,
        it is certain to be durable only when :meth:`sync` returns.
        """
        headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(after)}
        size, limit = message_size(data, headers), self._connection.max_payload
        if size > limit:
            raise TooLargeError(f"'{key}' would take {size} bytes; the server takes at most {limit}")
        try:
            return await self._connection.publish(kv_subject(self._bucket, key), data, headers, is_urgent=is_urgent)
        except TooLargeError as error:
            raise TooLargeError(f"'{key}' is larger than the bucket {self._bucket} takes: {error}") from error

    async def sync(self) -> None:
        """Return when everything in the bucket is durable."""
        await self._connection.sync(kv_stream(self._bucket))

    async def forbid(self, key: str, *, after: int) -> int:
        """Write a marker under a key without a value, and return its revision; ChangedError if that was not its last.

        For every NATS client the key is deleted. The marker also says that it was not an operator who deleted it.
        """
        headers = {_OPERATION: "DEL", _FORBIDDEN: "1", Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(after)}
        return await self._connection.publish(kv_subject(self._bucket, key), b"", headers)

    async def purge(self, key: str) -> int:
        """Remove all values of the key, and return the revision of the marker that stays for watchers."""
        headers = {_OPERATION: "PURGE", Header.ROLLUP.value: "sub"}
        return await self._connection.publish(kv_subject(self._bucket, key), b"", headers)


def is_removal(headers: bytes) -> bool:
    """Return whether headers as they were received belong to a marker, and not to a value."""
    return any(mark in headers for mark in _MARKS) and _is_removal(parsed_headers(headers))


def entry_of(message: StoredMessage) -> KvEntry:
    """Return the value in a message; a marker (the key was removed, or expired) has none."""
    if _is_removal(message.headers):
        return KvEntry(None, message.sequence, _FORBIDDEN in message.headers)
    return KvEntry(message.data, message.sequence)


def _is_removal(headers: Mapping[str, str]) -> bool:
    return headers.get(_OPERATION) in _REMOVED or _LIMIT_MARKER in headers

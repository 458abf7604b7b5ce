"""A key of a KV bucket, read and written by compare-and-set."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from nats.js.api import Header

from pyoco_server.adapters.jetstream.client import parsed_headers
from pyoco_server.adapters.jetstream.connection import Connection, message_size
from pyoco_server.adapters.jetstream.names import kv_stream, kv_subject
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.app.ports import TooLargeError

_OPERATION: Final = "KV-Operation"
_REMOVED: Final = {"DEL", "PURGE"}
_LIMIT_MARKER: Final = "Nats-Marker-Reason"
_MARKS: Final = (_OPERATION.encode(), _LIMIT_MARKER.encode())


class Entry(NamedTuple):
    """What a key holds; ``data`` is None if it was deleted, which has a revision too."""

    data: bytes | None
    revision: int


NOTHING: Final = Entry(None, 0)


class Bucket:
    """A KV bucket. Keys are tokens the caller has checked."""

    def __init__(self, connection: Connection, bucket: str) -> None:
        self._bucket = bucket
        self._connection = connection
        self._reader = StreamReader(connection, kv_stream(bucket))
        self._leader = StreamReader(connection, kv_stream(bucket), leader=True)

    async def look(self, key: str, *, newest: bool = False) -> Entry:
        """What the key holds. With several replicas it may be a little old, unless the ``newest`` is asked for."""
        reader = self._leader if newest else self._reader
        found = await reader.last(kv_subject(self._bucket, key))
        return NOTHING if found is None else entry_of(found)

    async def all(self) -> dict[str, bytes]:
        """What all keys hold, in the order of the keys."""
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

        TooLargeError if it is more than the bucket takes; UnavailableError: nobody knows. If it is not urgent, it is
        certain to be durable only when :meth:`sync` returns.
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
        """Return when all that the bucket holds is durable."""
        await self._connection.sync(kv_stream(self._bucket))

    async def mark_removed(self, key: str) -> int:
        """Write a marker under a key that was never written, and return its revision; ChangedError if it was."""
        headers = {_OPERATION: "DEL", Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"}
        return await self._connection.publish(kv_subject(self._bucket, key), b"", headers)

    async def purge(self, key: str) -> int:
        """Remove all the key ever held; a marker stays, so that those who watch see it. Returns its revision."""
        headers = {_OPERATION: "PURGE", Header.ROLLUP.value: "sub"}
        return await self._connection.publish(kv_subject(self._bucket, key), b"", headers)


def is_removal(headers: bytes) -> bool:
    """Do headers as they came say that the message is a marker, and not a value?"""
    return any(mark in headers for mark in _MARKS) and _is_removal(parsed_headers(headers))


def entry_of(message: StoredMessage) -> Entry:
    """Markers are not values: of a key that was removed, by hand or by a limit of the bucket."""
    return Entry(None if _is_removal(message.headers) else message.data, message.sequence)


def _is_removal(headers: Mapping[str, str]) -> bool:
    return headers.get(_OPERATION) in _REMOVED or _LIMIT_MARKER in headers

"""Dead letters in a stream that drops the oldest."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from nats.js.api import StreamState

from pyoco_server.adapters.jetstream.durability.connection import Connection, message_size
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError, translated
from pyoco_server.app.ports import StoredDeadLetter, TooLargeError, UnavailableError


class JetStreamDeadLetters:
    """The dead letters that the stream still has."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._reader = StreamReader(connection, names.dlq_stream)

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Store an entry durably; TooLargeError if the server would reject it."""
        subject, body = self._names.dlq_subject(tag), msgspec.json.encode(entry)
        size, limit = message_size(body), self._connection.max_payload
        if size > limit:
            raise TooLargeError(f"a dead letter of {size} bytes is too large; the server takes at most {limit}")
        await self._connection.publish(subject, body)

    async def count(self) -> int:
        """Return how many there are."""
        return (await self._state()).messages

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        """Return up to ``limit`` of them, newest first; messages that are no JSON objects are skipped."""
        state = await self._state()
        if limit <= 0 or state.messages == 0:
            return []
        wanted, span = min(limit, state.messages), limit
        while True:
            first = max(state.first_seq, state.last_seq - span + 1)
            found = await self._between(first, state.last_seq, limit)
            if len(found) >= wanted or first == state.first_seq:
                letters = [self._letter(message) for message in reversed(found)]
                return [letter for letter in letters if letter is not None]
            span *= 4  # some were deleted by hand: read further back

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        """Return the one with this number, if it is still there."""
        found = await self._reader.first(f"{self._names.dlq_prefix}.>", start=sequence)
        return self._letter(found) if found is not None and found.sequence == sequence else None

    async def _state(self) -> StreamState:
        try:
            with translated():
                return (await self._connection.js.stream_info(self._names.dlq_stream)).state
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.dlq_stream}") from error

    async def _between(self, first: int, last: int, limit: int) -> Sequence[StoredMessage]:
        """Return the last ``limit`` messages of a part of the stream."""
        found: deque[StoredMessage] = deque(maxlen=limit)
        while first <= last:
            page = await self._reader.page(f"{self._names.dlq_prefix}.>", start=first)
            if not page.messages:
                break
            found.extend(page.messages)
            first = page.messages[-1].sequence + 1
        return found

    def _letter(self, message: StoredMessage) -> StoredDeadLetter | None:
        try:
            entry = msgspec.json.decode(message.data, type=dict[str, Any])
        except msgspec.DecodeError:
            return None
        tag = message.subject.removeprefix(f"{self._names.dlq_prefix}.")
        return StoredDeadLetter(message.sequence, tag, entry)

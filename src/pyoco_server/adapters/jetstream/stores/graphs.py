"""Registered graphs in a KV bucket."""

from typing import Final

from pyoco_server.adapters.jetstream.durability.connection import Connection, message_size
from pyoco_server.adapters.jetstream.primitives.names import EXPECTED_SEQUENCE, Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.error_translation import ChangedError
from pyoco_server.app.ports import TooLargeError
from pyoco_server.identifiers import KEY

_DELETED: Final = "KV-Operation"


class JetStreamGraphRegistry:
    """Graphs by id; a registered graph never changes."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._bucket = names.graphs_bucket
        self._reader = StreamReader(connection, kv_stream(self._bucket), leader=names.replicas > 1)

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if another one has the id already."""
        subject = self._subject(graph_id)
        while True:
            found = await self._reader.last(subject)
            if found is not None and not _is_deleted(found):
                await self._connection.sync(kv_stream(self._bucket))  # its writer may not have waited for that
                return found.data == encoded
            headers = {EXPECTED_SEQUENCE: str(found.sequence if found else 0)}
            self._check_size(graph_id, encoded, headers)
            try:
                await self._connection.publish(subject, encoded, headers)
            except ChangedError:
                continue
            return True

    async def get(self, graph_id: str) -> bytes | None:
        """Return the graph with the id."""
        found = await self._reader.last(self._subject(graph_id))
        return None if found is None or _is_deleted(found) else found.data

    def _subject(self, graph_id: str) -> str:
        return kv_subject(self._bucket, KEY.checked(graph_id, "graphId"))

    def _check_size(self, graph_id: str, encoded: bytes, headers: dict[str, str]) -> None:
        size, most = message_size(encoded, headers), self._connection.max_payload
        if size > most:
            raise TooLargeError(
                f"the graph '{graph_id}' has {size} bytes, the server accepts {most}: "
                "split it, or raise max_payload in the server's configuration"
            )


def _is_deleted(message: StoredMessage) -> bool:
    """Return whether an operator has removed the graph with the usual tools, which leave a marker."""
    return _DELETED in message.headers

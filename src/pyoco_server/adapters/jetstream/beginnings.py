"""Logs that have only just begun: the server knows of every subject how many messages it has."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.translation import MissingError
from pyoco_server.app.ports import UnavailableError

_TIMEOUT_SEC: Final = 15.0
"""For a page: the server counts all subjects for each, and there may be millions."""


class _State(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _Listing(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)
    total: int = 0


class JetStreamBeginnings:
    """Lists the subjects of the stream of logs, as many at a time as the server tells at once."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    async def pages(self) -> AsyncIterator[Sequence[str]]:
        """Ids of executions with a single commit."""
        prefix, offset, total = f"{self._names.events_prefix}.", 0, 1
        while offset < total:
            listing = await self._page(f"{prefix}*", offset)
            subjects = listing.state.subjects or {}
            yield [subject.removeprefix(prefix) for subject, messages in subjects.items() if messages == 1]
            if not subjects:
                break
            offset, total = offset + len(subjects), listing.total

    async def _page(self, pattern: str, offset: int) -> _Listing:
        request = msgspec.json.encode({"subjects_filter": pattern, "offset": offset})
        stream = self._names.events_stream
        try:
            answer = await self._connection.request(f"STREAM.INFO.{stream}", request, timeout_sec=_TIMEOUT_SEC)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {stream}") from error
        return msgspec.json.decode(answer, type=_Listing)

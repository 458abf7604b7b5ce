"""Lists the subjects of the log and of the snapshots, and the jobs, page by page.

The server returns at most 100,000 subjects at a time, sorted; for each page it counts and sorts all of them. The lists
of logs and of snapshots are in the same order, so a page or two of each are in memory, however many runs there are.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.listing import ListedLog

_TIMEOUT_SEC: Final = 30.0
"""For a page: the server counts all subjects for each page, and there may be millions."""


class _StreamState(msgspec.Struct):
    messages: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class _StreamInfo(msgspec.Struct):
    state: _StreamState = msgspec.field(default_factory=_StreamState)
    created: str = ""
    total: int = 0


class JetStreamListing:
    """Lists what the streams of the log, of the snapshots and of the jobs contain."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._snapshots = kv_stream(names.runs_bucket)
        self._jobs = StreamReader(connection, names.work_stream)

    async def logs(self) -> AsyncIterator[Sequence[ListedLog]]:
        """Yield all logs in the order of their ids."""
        snapshots = self._last_tokens(self._snapshots, kv_subject(self._names.runs_bucket, "*"))
        known, reached, is_more = set[str](), "", True
        async for counts in self._last_tokens(self._names.events_stream, f"{self._names.events_prefix}.*"):
            highest = max(counts)
            while is_more and reached < highest:
                page = await anext(snapshots, None)
                is_more = page is not None
                if page is not None:
                    known |= page.keys()
                    reached = max(page)
            yield [ListedLog(run_id, commits, run_id in known) for run_id, commits in counts.items()]
            known = {run_id for run_id in known if run_id > highest}

    async def jobs(self) -> AsyncIterator[Sequence[bytes]]:
        """Yield all jobs in their order."""
        subject, start, left = f"{self._names.work_prefix}.>", 1, 1
        while left:
            page = await self._jobs.page(subject, start=start)
            if not page.messages:
                return
            yield [message.data for message in page.messages]
            start, left = page.messages[-1].sequence + 1, page.left

    async def state(self) -> str:
        """Return the creation, the last sequence and the number of messages of each stream."""
        streams = (self._names.events_stream, self._snapshots, self._names.work_stream)
        found = [await self._info(stream, {}) for stream in streams]
        return " ".join(f"{each.created}/{each.state.last_seq}/{each.state.messages}" for each in found)

    async def _last_tokens(self, stream: str, pattern: str) -> AsyncIterator[dict[str, int]]:
        """Yield the last tokens of all subjects of the pattern, each with its number of messages; no empty page."""
        offset, total = 0, 1
        while offset < total:
            info = await self._info(stream, {"subjects_filter": pattern, "offset": offset})
            subjects = info.state.subjects
            if not subjects:
                return
            yield {subject.rpartition(".")[2]: messages for subject, messages in subjects.items()}
            offset, total = offset + len(subjects), info.total

    async def _info(self, stream: str, request: dict[str, object]) -> _StreamInfo:
        body = msgspec.json.encode(request)
        try:
            answer = await self._connection.request(f"STREAM.INFO.{stream}", body, timeout_sec=_TIMEOUT_SEC)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {stream}") from error
        return msgspec.json.decode(answer, type=_StreamInfo)

"""The changes of snapshots, read off the stream behind their bucket by sequence.

Nothing has to be told for a change to be seen: whoever reads behind the last sequence he knows gets all there is. What
changed is announced on a live subject, with the snapshot itself. Who has heard of all there is behind a sequence need
not ask for it, which is more than a convenience: for every page of a stream the server counts what is behind it, and
looks at all subjects for that. What is missed there is read later.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final

from pyoco_server.adapters.jetstream.client import header_value
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.kv import entry_of, is_removal
from pyoco_server.adapters.jetstream.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.translation import MissingError, translated
from pyoco_server.app.ports import FeedState, SnapshotChange, UnavailableError
from pyoco_server.app.ports.run_index import Announced, has_enough

_ALL: Final = ">"
"""A bucket's stream has nothing but its keys. Of any narrower subject the server would count, for every page, how many
messages there are behind it by looking at all subjects."""

MOST_HEARD: Final = 2_000
MOST_BYTES_HEARD: Final = 8 * 1024 * 1024
"""So much of what was announced is kept for whoever reads; who is further behind asks for it."""


class JetStreamSnapshotFeed:
    """Changes in the bucket of the runs. A bucket that announces nothing is read when waiting times out."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._stream = kv_stream(names.runs_bucket)
        self._keys = kv_subject(names.runs_bucket, "")
        self._live = f"{names.live_snapshots_prefix}.>"
        self._run_id_at = len(f"{names.live_snapshots_prefix}.")
        self._reader = StreamReader(connection, self._stream)
        self._changed = asyncio.Event()
        self._heard = _Heard()
        self._is_listening = False
        self._listeners: list[Announced] = []

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        """Changes behind ``after``, oldest first, and up to where they have been read."""
        await self._listen()
        if after == 0:  # perhaps of another bucket than before: what was heard may be of the old one
            self._heard.forget()
        heard = self._heard.behind(after, limit)
        if heard:
            return heard, heard[-1].sequence
        changes = await self._behind(after, limit)
        if not changes and after > 0 and (await self.state()).last < after:
            self._heard.forget()
            after, changes = 0, await self._behind(0, limit)
        return changes, changes[-1].sequence if changes else after

    async def state(self) -> FeedState:
        """What there is to read. The stream's birthday tells it from one that was deleted."""
        try:
            with translated():
                info = await self._connection.js.stream_info(self._stream)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._stream}") from error
        return FeedState(f"{self._stream} of {info.created}", info.state.first_seq, info.state.last_seq)

    async def wait(self, timeout_sec: float) -> None:
        """Return when something was announced, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        self._changed.clear()

    def listen(self, told: Announced) -> None:
        """Be told of changes as they are announced."""
        self._listeners.append(told)

    async def _behind(self, after: int, limit: int) -> list[SnapshotChange]:
        changes: list[SnapshotChange] = []
        while not has_enough(changes, limit):
            page = await self._reader.page(_ALL, start=after + 1, most=limit - len(changes))
            for message in page.messages:
                if message.subject.startswith(self._keys):
                    run_id, data = message.subject.removeprefix(self._keys), entry_of(message).data
                    changes.append(SnapshotChange(run_id, data, message.sequence))
            if not page.messages or page.left == 0:
                break
            after = page.messages[-1].sequence
        return changes

    async def _listen(self) -> None:
        """Begin to listen before the first read: what is written from then on is announced."""
        if self._is_listening:
            return

        with translated():
            await self._connection.nc.listen(self._live, self._announced)
        self._is_listening = True

    def _announced(self, subject: bytes, data: bytes, headers: bytes | None, _reply: bytes) -> None:
        self._changed.set()
        run_id = subject[self._run_id_at :].decode(errors="replace")
        change = self._heard.take(run_id, data, headers)
        for told in self._listeners:
            told(run_id, change)


class _Heard:
    """The last changes that were announced, without a gap: what is behind one of them is known from here."""

    def __init__(self) -> None:
        self._changes: deque[SnapshotChange] = deque()
        self._bytes = 0

    def take(self, run_id: str, data: bytes, headers: bytes | None) -> SnapshotChange | None:
        """A change was announced; None if it does not tell which.

        A stream that was made before snapshots were told along tells their size only.
        """
        sequence = header_value(headers, b"Nats-Sequence")
        if headers is None or sequence is None or header_value(headers, b"Nats-Msg-Size") is not None:
            self.forget()
            return None
        change = SnapshotChange(run_id, None if is_removal(headers) else data, int(sequence))
        is_next = bool(self._changes) and change.sequence == self._changes[-1].sequence + 1
        if not is_next or len(self._changes) >= MOST_HEARD or self._bytes > MOST_BYTES_HEARD:
            self.forget()
        self._changes.append(change)
        self._bytes += len(change.body or b"")
        return change

    def behind(self, after: int, limit: int) -> list[SnapshotChange]:
        """So many of the changes behind ``after``, of each run the newest; none if some of them were not heard."""
        while self._changes and self._changes[0].sequence <= after:
            self._bytes -= len(self._changes.popleft().body or b"")
        if not self._changes or self._changes[0].sequence != after + 1:
            return []
        newest: dict[str, SnapshotChange] = {}
        for change in self._changes:
            if len(newest) == limit:
                break
            newest.pop(change.run_id, None)  # the order is that of the newest
            newest[change.run_id] = change
        return [*newest.values()]

    def forget(self) -> None:
        """Nothing of what was heard counts any more."""
        self._changes.clear()
        self._bytes = 0

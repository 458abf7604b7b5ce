"""The feed of changed snapshots, by the sequence of the stream behind their bucket.

Reading after the last known sequence returns every change, announced or not. In addition, the server announces each
change with the snapshot on a live subject. A reader that received every announcement after a sequence needs no read,
which matters: for each page of a stream, the server counts what follows it, and visits all subjects for that. Missed
announcements are read later.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.kv import entry_of, is_removal
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.transport.client import header_value
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError, translated
from pyoco_server.app.ports import FeedState, SnapshotChange, UnavailableError
from pyoco_server.app.ports.run_index import Announced, has_enough

_ALL: Final = ">"
"""The stream has only the keys of the bucket. For a narrower subject, the server would visit all subjects for every
page, to count what follows."""

MOST_ANNOUNCED: Final = 2_000
MOST_BYTES_ANNOUNCED: Final = 8 * 1024 * 1024
"""How many announced bytes are kept for readers; a reader further behind reads the stream."""


class JetStreamSnapshotFeed:
    """Changes in the bucket of the runs. A bucket without announcements is read when waiting times out."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._stream = kv_stream(names.runs_bucket)
        self._keys = kv_subject(names.runs_bucket, "")
        self._live = f"{names.live_snapshots_prefix}.>"
        self._run_id_at = len(f"{names.live_snapshots_prefix}.")
        self._reader = StreamReader(connection, self._stream)
        self._changed = asyncio.Event()
        self._announced_changes = _AnnouncedChanges()
        self._is_subscribed = False
        self._listeners: list[Announced] = []

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        """Return the changes after that sequence, oldest first, and the sequence up to which they are complete."""
        await self._subscribe()
        if after == 0:  # the bucket may be a new one, and the announcements of the old one
            self._announced_changes.forget()
        announced = self._announced_changes.behind(after, limit)
        if announced:
            return announced, announced[-1].sequence
        changes = await self._behind(after, limit)
        if not changes and after > 0 and (await self.state()).last < after:
            self._announced_changes.forget()
            after, changes = 0, await self._behind(0, limit)
        return changes, changes[-1].sequence if changes else after

    async def state(self) -> FeedState:
        """Return the identity and the range of the stream. Its time of creation distinguishes it from a deleted one."""
        try:
            with translated():
                info = await self._connection.js.stream_info(self._stream)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._stream}") from error
        return FeedState(f"{self._stream} of {info.created}", info.state.first_seq, info.state.last_seq)

    async def wait(self, timeout_sec: float) -> None:
        """Return when a change was announced, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        self._changed.clear()

    def listen(self, listener: Announced) -> None:
        """Call ``listener`` with each announced change."""
        self._listeners.append(listener)

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

    async def _subscribe(self) -> None:
        """Subscribe before the first read: later changes are announced."""
        if self._is_subscribed:
            return

        with translated():
            await self._connection.nc.subscribe_inline(self._live, self._announced)
        self._is_subscribed = True

    def _announced(self, subject: bytes, data: bytes, headers: bytes | None, _reply: bytes) -> None:
        self._changed.set()
        run_id = subject[self._run_id_at :].decode(errors="replace")
        change = self._announced_changes.take(run_id, data, headers)
        for listener in self._listeners:
            listener(run_id, change)


class _AnnouncedChanges:
    """The last announced changes, without a gap: everything after one of them is known without a read."""

    def __init__(self) -> None:
        self._changes: deque[SnapshotChange] = deque()
        self._bytes = 0

    def take(self, run_id: str, data: bytes, headers: bytes | None) -> SnapshotChange | None:
        """Add an announced change and return it; None if the announcement does not contain it.

        A stream that was created before announcements had snapshots announces their size only.
        """
        sequence = header_value(headers, b"Nats-Sequence")
        if headers is None or sequence is None or header_value(headers, b"Nats-Msg-Size") is not None:
            self.forget()
            return None
        change = SnapshotChange(run_id, None if is_removal(headers) else data, int(sequence))
        is_next = bool(self._changes) and change.sequence == self._changes[-1].sequence + 1
        if not is_next or len(self._changes) >= MOST_ANNOUNCED or self._bytes > MOST_BYTES_ANNOUNCED:
            self.forget()
        self._changes.append(change)
        self._bytes += len(change.body or b"")
        return change

    def behind(self, after: int, limit: int) -> list[SnapshotChange]:
        """Return changes after that sequence, the newest of each run; none if an announcement was missed."""
        while self._changes and self._changes[0].sequence <= after:
            self._bytes -= len(self._changes.popleft().body or b"")
        if not self._changes or self._changes[0].sequence != after + 1:
            return []
        newest: dict[str, SnapshotChange] = {}
        for change in self._changes:
            if len(newest) == limit:
                break
            newest.pop(change.run_id, None)  # ordered by the newest
            newest[change.run_id] = change
        return [*newest.values()]

    def forget(self) -> None:
        """Drop all announced changes."""
        self._changes.clear()
        self._bytes = 0

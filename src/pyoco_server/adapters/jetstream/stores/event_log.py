"""The log on JetStream: one commit is one message on the run's subject, so it is stored completely or not at all.

A position is the stream sequence of the run's last commit. The server compares it before it writes, and the message
keeps the compared value: every commit names the one before it, so a reader knows that none is missing.

Everything that an append or a read returns is durable.

After an error of the network, the outcome of an append is unknown. Every commit has an id, so the writer checks whether
the first commit after its position is its own. It can be nowhere else, because the server compares the position.

The owner of a run is notified on a control subject of commits by other processes. Only an append to a run that another
process may own sends such a notification, so the many commits of an owner cost nothing more.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pyoco_server.adapters.jetstream.durability.connection import Connection, message_size
from pyoco_server.adapters.jetstream.primitives.names import EXPECTED_SEQUENCE, Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.client import InlineSubscription, header_value
from pyoco_server.adapters.jetstream.transport.error_translation import (
    NATS_ERRORS,
    ChangedError,
    RefusedError,
    translated,
)
from pyoco_server.adapters.system import series_maker
from pyoco_server.app.ports import (
    LogConflictError,
    NotStoredError,
    OnAppend,
    TooLargeError,
    UnavailableError,
    Unsubscribe,
)
from pyoco_server.core import DecodeError, Event, decode_event, encode_events
from pyoco_server.errors import PyocoServerError

COMMIT_ID: Final = "Pyoco-Commit-Id"
EVENT_COUNT: Final = "Pyoco-Event-Count"

_ROOM_FOR_HEADERS: Final = 512

_SHORTEST_PAUSE_SEC: Final = 0.02
_LONGEST_PAUSE_SEC: Final = 0.25

_COMMIT: Final = msgspec.json.Decoder(list[msgspec.Raw])


class BrokenLogError(PyocoServerError):
    """The log is not what was written: another program removed something from it, or added to it."""

    def __init__(self, execution_id: str, problem: str) -> None:
        super().__init__(f"the log of '{execution_id}' is damaged: {problem}")
        self.execution_id = execution_id


class JetStreamEventLog:
    """Logs in one stream, one subject a run."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        *,
        patience_sec: float = 10.0,
        leader_reads: bool | None = None,
    ) -> None:
        """``patience_sec``: how long to find out the outcome of a commit that was not acknowledged.

        ``leader_reads``: necessary if the stream has several replicas, and the default then.
        """
        self._connection = connection
        self._names = names
        self._patience_sec = patience_sec
        self._from_leader = names.replicas > 1 if leader_reads is None else leader_reads
        self._reader = StreamReader(connection, names.events_stream, leader=self._from_leader)
        self._new_id = series_maker()
        self._followers: dict[bytes, list[OnAppend]] = {}
        self._following: asyncio.Task[InlineSubscription] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Append a commit if the log still ends at ``after``, and return its position; else LogConflictError."""
        subject = self._names.events_subject(execution_id)
        if not commit:
            return await self._unmoved(execution_id, after)
        body = encode_events(commit)
        headers = {COMMIT_ID: self._new_id(), EVENT_COUNT: str(len(commit)), EXPECTED_SEQUENCE: str(after)}
        self._check_size(execution_id, body, headers)
        try:
            position = await self._publish(execution_id, subject, body, headers)
        except (NotStoredError, RefusedError):  # not sent, or refused: the outcome is known
            raise
        except UnavailableError as error:
            position = await self._resolve_in_doubt(execution_id, subject, body, headers, error)
        if not quiet:
            await self._notify_followers(execution_id, position)
        return position

    async def _notify_followers(self, execution_id: str, position: int) -> None:
        with contextlib.suppress(*NATS_ERRORS):  # a hint: a process that misses it checks from time to time
            await self._connection.nc.publish_raw(self._names.control_subject(execution_id), b"%d" % position)

    async def _publish(self, execution_id: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        try:
            return await self._connection.publish(subject, body, headers)
        except ChangedError:
            raise LogConflictError(execution_id, int(headers[EXPECTED_SEQUENCE])) from None
        except TooLargeError as error:
            raise TooLargeError(f"a commit of {len(body)} bytes is too large: {error}") from error

    async def _resolve_in_doubt(
        self, execution_id: str, subject: str, body: bytes, headers: dict[str, str], cause: Exception
    ) -> int:
        """Find out whether a commit is stored, and send it again if it is not.

        Both copies may arrive; they are equal, and the server accepts only the first.
        """
        after, pause = int(headers[EXPECTED_SEQUENCE]), _SHORTEST_PAUSE_SEC
        deadline = asyncio.get_running_loop().time() + self._patience_sec
        while asyncio.get_running_loop().time() < deadline:
            try:
                written = await self._reader.first(subject, start=after + 1)
                if written is None:
                    return await self._publish(execution_id, subject, body, headers)
            except (LogConflictError, UnavailableError) as error:
                # After a conflict, too: a commit is there now, and it may be this one.
                cause = error
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SEC)
                continue
            if written.headers.get(COMMIT_ID) == headers[COMMIT_ID]:
                await self._connection.sync(self._names.events_stream)
                return written.sequence
            raise LogConflictError(execution_id, after)
        raise UnavailableError(
            f"it is unknown whether a commit to '{execution_id}' was written: no answer for {self._patience_sec} s"
        ) from cause

    async def _unmoved(self, execution_id: str, after: int) -> int:
        if await self._end(execution_id) != after:
            raise LogConflictError(execution_id, after)
        return after

    def _check_size(self, execution_id: str, body: bytes, headers: dict[str, str]) -> None:
        most = self._connection.max_payload
        if len(body) + _ROOM_FOR_HEADERS > most and (size := message_size(body, headers)) > most:
            raise TooLargeError(
                f"a commit to '{execution_id}' has {size} bytes, the server accepts {most}: keep large values outside "
                "the log and refer to them, or raise max_payload in the server's configuration"
            )

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events after that position, and where the log ends."""
        subject = self._names.events_subject(execution_id)
        events: list[Event] = []
        end = await self._end(execution_id) if self._from_leader else None
        position, left, deadline = after, 1, asyncio.get_running_loop().time() + self._patience_sec
        while left or (end is not None and position < end):
            page = await self._reader.page(subject, start=position + 1)
            for message in page.messages:
                events.extend(_events(execution_id, message, after=position))
                position = message.sequence
            left = page.left
            is_lagging = not page.messages and end is not None and position < end
            if is_lagging:  # the answer came from a replica that lags behind
                if asyncio.get_running_loop().time() > deadline:
                    raise UnavailableError(f"no replica has the newest commits of '{execution_id}'")
                await asyncio.sleep(_SHORTEST_PAUSE_SEC)
        if position == after > 0:
            await self._confirm(execution_id, after)
        if events:
            # Their writer may have died before they were durable, and the caller may store what depends on them.
            await self._connection.sync(self._names.events_stream)
        return events, position

    async def _confirm(self, execution_id: str, position: int) -> None:
        """Raise BrokenLogError if the log ends before a position up to which it was read earlier."""
        end = await self._end(execution_id)
        if end < position:
            raise BrokenLogError(execution_id, f"it was read up to {position} before, and ends at {end} now")

    async def _end(self, execution_id: str) -> int:
        last = await self._reader.last(self._names.events_subject(execution_id))
        return last.sequence if last is not None else 0

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Call ``on_append`` with the position of commits by other processes. A later read sees the ones before."""
        key = self._names.control_subject(execution_id).encode()
        if self._following is None or (self._following.done() and self._following.exception() is not None):
            subscribing = self._connection.nc.subscribe_inline(f"{self._names.control_prefix}.*", self._followed)
            self._following = asyncio.ensure_future(subscribing)
        if not self._following.done():
            with translated():
                await asyncio.shield(self._following)
        self._followers.setdefault(key, []).append(on_append)

        def unsubscribe() -> None:
            followers = self._followers.get(key, [])
            if on_append in followers:
                followers.remove(on_append)
            if not followers:
                self._followers.pop(key, None)

        return unsubscribe

    def _followed(self, subject: bytes, data: bytes, _headers: bytes | None, _reply: bytes) -> None:
        followers = self._followers.get(subject)
        if followers and data.isdigit():
            for on_append in [*followers]:
                on_append(int(data))

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        """Call ``on_append`` with the execution's id and position of every commit of every execution."""

        def on_message(subject: bytes, _data: bytes, headers: bytes | None, _reply: bytes) -> None:
            position = header_value(headers, b"Nats-Sequence")
            if position is not None:
                on_append(subject.rpartition(b".")[2].decode(errors="replace"), int(position))

        with translated():
            subscription = await self._connection.nc.subscribe_inline(f"{self._names.live_prefix}.*", on_message)
        done = False

        def unsubscribe() -> None:
            nonlocal done
            if not done:
                done = True
                task = asyncio.get_running_loop().create_task(self._connection.nc.unsubscribe_inline(subscription))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

        return unsubscribe


def _events(execution_id: str, message: StoredMessage, *, after: int) -> list[Event]:
    """Return the events of a commit; BrokenLogError unless it is the one after that position."""
    follows = message.headers.get(EXPECTED_SEQUENCE)
    if follows != str(after):
        raise BrokenLogError(
            execution_id, f"position {message.sequence} follows {follows}, but {after} is what comes before it"
        )
    try:
        events = [decode_event(bytes(raw)) for raw in _COMMIT.decode(message.data)]
    except (msgspec.DecodeError, DecodeError) as error:
        raise BrokenLogError(execution_id, f"position {message.sequence} cannot be read: {error}") from error
    if message.headers.get(EVENT_COUNT) != str(len(events)):
        raise BrokenLogError(
            execution_id, f"position {message.sequence} has {len(events)} events, and its header states another number"
        )
    return events

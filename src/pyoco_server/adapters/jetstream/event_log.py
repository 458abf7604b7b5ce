"""The log on JetStream: one commit is one message on the run's subject, so it is there whole or not at all.

A position is the stream sequence of the run's last commit. The server compares it before it writes, and the message
keeps what was compared: every commit names the one before it, which is how a reader knows that none is missing.

What is returned, by an append or by a read, is durable.

An error of the network says nothing about what was written. Every commit carries an id; whoever got no answer looks
whether the first commit behind its position is its own. It can be in no other place: the server refuses it there.

Those who follow a run hear of it on a control subject. Only those tell who write to a run others may have in hand, so
that the many commits of a run nobody else knows of cost nothing more.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from nats.aio.subscription import Subscription
from nats.js.api import Header

from pyoco_server.adapters.ids import series_maker
from pyoco_server.adapters.jetstream.client import header_value
from pyoco_server.adapters.jetstream.connection import Connection, message_size
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.translation import NATS_ERRORS, ChangedError, RefusedError, translated
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
AFTER: Final = Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value

_ROOM_FOR_HEADERS: Final = 512

_SHORTEST_PAUSE_SEC: Final = 0.02
_LONGEST_PAUSE_SEC: Final = 0.25

_COMMIT: Final = msgspec.json.Decoder(list[msgspec.Raw])


class BrokenLogError(PyocoServerError):
    """The log is not what was written: something was removed from it, or put into it, by other hands."""

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
        """``patience_sec``: how long to find out what became of a commit nobody answered for.

        ``leader_reads``: needed when the stream has several replicas, and the default then.
        """
        self._connection = connection
        self._names = names
        self._patience_sec = patience_sec
        self._from_leader = names.replicas > 1 if leader_reads is None else leader_reads
        self._reader = StreamReader(connection, names.events_stream, leader=self._from_leader)
        self._new_id = series_maker()
        self._followers: dict[bytes, list[OnAppend]] = {}
        self._following: asyncio.Task[Subscription] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Add a commit if the log still ends at ``after``."""
        subject = self._names.events_subject(execution_id)
        if not commit:
            return await self._unmoved(execution_id, after)
        body = encode_events(commit)
        headers = {COMMIT_ID: self._new_id(), EVENT_COUNT: str(len(commit)), AFTER: str(after)}
        self._check_size(execution_id, body, headers)
        try:
            position = await self._publish(execution_id, subject, body, headers)
        except (NotStoredError, RefusedError):  # not sent, or answered: there is nothing to find out
            raise
        except UnavailableError as error:
            position = await self._settle(execution_id, subject, body, headers, error)
        if not quiet:
            await self._tell_followers(execution_id, position)
        return position

    async def _tell_followers(self, execution_id: str, position: int) -> None:
        with contextlib.suppress(*NATS_ERRORS):  # a hint: those it does not reach look now and then
            await self._connection.nc.tell(self._names.control_subject(execution_id), b"%d" % position)

    async def _publish(self, execution_id: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        try:
            return await self._connection.publish(subject, body, headers)
        except ChangedError:
            raise LogConflictError(execution_id, int(headers[AFTER])) from None
        except TooLargeError as error:
            raise TooLargeError(f"a commit of {len(body)} bytes is too large: {error}") from error

    async def _settle(
        self, execution_id: str, subject: str, body: bytes, headers: dict[str, str], cause: Exception
    ) -> int:
        """Find out what became of a commit that was sent, and send it again if it is not there.

        Both may arrive in the end; the server takes only the first, and both are the same.
        """
        after, pause = int(headers[AFTER]), _SHORTEST_PAUSE_SEC
        deadline = asyncio.get_running_loop().time() + self._patience_sec
        while asyncio.get_running_loop().time() < deadline:
            try:
                written = await self._reader.first(subject, start=after + 1)
                if written is None:
                    return await self._publish(execution_id, subject, body, headers)
            except (LogConflictError, UnavailableError) as error:
                # A conflict too: somebody's commit is there now, and perhaps it is ours.
                cause = error
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SEC)
                continue
            if written.headers.get(COMMIT_ID) == headers[COMMIT_ID]:
                await self._connection.sync(self._names.events_stream)
                return written.sequence
            raise LogConflictError(execution_id, after)
        raise UnavailableError(
            f"nobody knows whether a commit to '{execution_id}' was written: no answer for {self._patience_sec} s"
        ) from cause

    async def _unmoved(self, execution_id: str, after: int) -> int:
        if await self._end(execution_id) != after:
            raise LogConflictError(execution_id, after)
        return after

    def _check_size(self, execution_id: str, body: bytes, headers: dict[str, str]) -> None:
        most = self._connection.max_payload
        if len(body) + _ROOM_FOR_HEADERS > most and (size := message_size(body, headers)) > most:
            raise TooLargeError(
                f"a commit to '{execution_id}' has {size} bytes, the server takes {most}: keep large values outside "
                "the log and refer to them, or raise max_payload in the server's configuration"
            )

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events behind ``after``, and where the log ends."""
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
            if not page.messages and end is not None and position < end:  # a replica that lags behind answered
                if asyncio.get_running_loop().time() > deadline:
                    raise UnavailableError(f"no replica has the newest commits of '{execution_id}'")
                await asyncio.sleep(_SHORTEST_PAUSE_SEC)
        if position == after > 0:
            await self._confirm(execution_id, after)
        if events:
            # Whoever wrote them may have died before they were durable, and not all that follows goes to this log.
            await self._connection.sync(self._names.events_stream)
        return events, position

    async def _confirm(self, execution_id: str, position: int) -> None:
        """Nothing behind a position: is that because the log ends there, or because it never came so far?"""
        end = await self._end(execution_id)
        if end < position:
            raise BrokenLogError(execution_id, f"it was read up to {position} before, and ends at {end} now")

    async def _end(self, execution_id: str) -> int:
        last = await self._reader.last(self._names.events_subject(execution_id))
        return last.sequence if last is not None else 0

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Be told of commits by others. A read that begins after this returned sees what this may have missed."""
        key = self._names.control_subject(execution_id).encode()
        if self._following is None or (self._following.done() and self._following.exception() is not None):
            listening = self._connection.nc.listen(f"{self._names.control_prefix}.*", self._followed)
            self._following = asyncio.ensure_future(listening)
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
        """Be told of every commit of every execution, by its id."""

        def told(subject: bytes, _data: bytes, headers: bytes | None, _reply: bytes) -> None:
            position = header_value(headers, b"Nats-Sequence")
            if position is not None:
                on_append(subject.rpartition(b".")[2].decode(errors="replace"), int(position))

        with translated():
            subscription = await self._connection.nc.listen(f"{self._names.live_prefix}.*", told)
        done = False

        def unsubscribe() -> None:
            nonlocal done
            if not done:
                done = True
                task = asyncio.get_running_loop().create_task(self._connection.nc.leave(subscription))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

        return unsubscribe


def _events(execution_id: str, message: StoredMessage, *, after: int) -> list[Event]:
    """The events of a commit, if it is the one that follows ``after``."""
    follows = message.headers.get(AFTER)
    if follows != str(after):
        raise BrokenLogError(
            execution_id, f"position {message.sequence} follows {follows}, but {after} is what comes before it"
        )
    try:
        events = [decode_event(bytes(raw)) for raw in _COMMIT.decode(message.data)]
    except (msgspec.DecodeError, DecodeError) as error:
        raise BrokenLogError(execution_id, f"position {message.sequence} cannot be read: {error}") from error
    if message.headers.get(EVENT_COUNT) != str(len(events)):
        raise BrokenLogError(execution_id, f"position {message.sequence} has {len(events)} events, but tells of others")
    return events

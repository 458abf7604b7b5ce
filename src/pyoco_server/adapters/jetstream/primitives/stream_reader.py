"""Reads the messages of a stream on one subject without a consumer, by direct get: one message, or a page.

A page is one request and many answers, which arrive in order on an inbox of the reader. Each answer names the one
before it, so a page is accepted completely or not at all. A stream that another program created may not allow direct
get; its messages are then requested one by one.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

import msgspec
import nats.errors

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.transport.client import parsed_headers
from pyoco_server.adapters.jetstream.transport.error_translation import translated
from pyoco_server.app.ports import UnavailableError

PAGE_MESSAGES: Final = 500
PAGE_BYTES: Final = 4 * 1024 * 1024

_END_OF_PAGE: Final = "204"
_NOT_FOUND: Final = "404"
_NO_RESPONDERS: Final = "503"
_NO_SUCH_MESSAGE: Final = 10037
_ONE_BY_ONE: Final = 100


class StoredMessage(NamedTuple):
    """A message as the stream holds it."""

    sequence: int
    headers: Mapping[str, str]
    data: bytes
    subject: str


class MessagePage(NamedTuple):
    """Messages of one subject in their order, and at least how many follow (0: none)."""

    messages: list[StoredMessage]
    left: int


class StreamReader:
    """Reads one stream. With ``leader``, single messages come from the server that has the newest.

    With one replica every answer is current. With several, any of them may answer a direct get, and may lag behind what
    was acknowledged; a page is then complete only up to a sequence that the caller has from the leader.
    """

    def __init__(self, connection: Connection, stream: str, *, leader: bool = False) -> None:
        self._connection = connection
        self._direct = f"$JS.API.DIRECT.GET.{stream}"
        self._leader = f"$JS.API.STREAM.MSG.GET.{stream}"
        self._only_leader = leader
        self._inbox: str | None = None
        self._pages: dict[str, _Collector] = {}
        self._requests = 0

    async def last(self, subject: str) -> StoredMessage | None:
        """Return the newest message of the subject."""
        with translated():
            return await self._one({"last_by_subj": subject})

    async def first(self, subject: str, *, start: int) -> StoredMessage | None:
        """Return the first message of the subject at or after a sequence."""
        with translated():
            return await self._one({"seq": max(start, 1), "next_by_subj": subject})

    async def page(
        self, subject: str, *, start: int, most: int = PAGE_MESSAGES, most_bytes: int = PAGE_BYTES
    ) -> MessagePage:
        """Return the messages of the subject from a sequence on, as many as fit; at least one if there is one."""
        request = {"seq": max(start, 1), "next_by_subj": subject, "batch": most, "max_bytes": most_bytes}
        with translated():
            try:
                async with self._collector() as (inbox, collector):
                    await self._connection.nc.publish(self._direct, msgspec.json.encode(request), reply=inbox)
                    return await collector.page(self._connection.request_timeout_sec)
            except nats.errors.NoRespondersError:
                return await self._page_one_by_one(subject, start=start, most=min(most, _ONE_BY_ONE))

    async def _one(self, request: dict[str, object]) -> StoredMessage | None:
        body, timeout = msgspec.json.encode(request), self._connection.request_timeout_sec
        if not self._only_leader:
            with contextlib.suppress(nats.errors.NoRespondersError):
                answer = await self._connection.nc.request_raw(self._direct, body, b"", timeout=timeout)
                headers = parsed_headers(answer.headers)
                return None if headers.get("Status") == _NOT_FOUND else _stored(headers, answer.data)
        return _from_leader((await self._connection.nc.request_raw(self._leader, body, b"", timeout=timeout)).data)

    async def _page_one_by_one(self, subject: str, *, start: int, most: int) -> MessagePage:
        messages: list[StoredMessage] = []
        while len(messages) < most:
            found = await self.first(subject, start=start)
            if found is None:
                return MessagePage(messages, 0)
            messages.append(found)
            start = found.sequence + 1
        return MessagePage(messages, 1)

    @contextlib.asynccontextmanager
    async def _collector(self) -> AsyncIterator[tuple[str, "_Collector"]]:
        if self._inbox is None:
            inbox = self._connection.nc.new_inbox()
            await self._connection.nc.subscribe_inline(f"{inbox}.*", self._take)
            self._inbox = inbox
        self._requests += 1
        token = str(self._requests)
        with self._connection.awaiting() as done:
            collector = self._pages[token] = _Collector(done)
            try:
                yield f"{self._inbox}.{token}", collector
            finally:
                del self._pages[token]

    def _take(self, subject: bytes, data: bytes, headers: bytes | None, _reply: bytes) -> None:
        collector = self._pages.get(subject.rpartition(b".")[2].decode(errors="replace"))
        if collector is not None:
            collector.take(parsed_headers(headers), data)


class _Collector:
    """Collects the answers to one request."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self._done = done
        self._messages: list[StoredMessage] = []
        self._left = 0

    def take(self, headers: Mapping[str, str], data: bytes) -> None:
        if self._done.done():
            return
        try:
            self._add(headers, data)
        except (UnavailableError, nats.errors.Error) as error:
            self._done.set_exception(error)
        except ValueError as error:
            self._done.set_exception(UnavailableError(f"NATS sent an answer that cannot be read: {error}"))

    def _add(self, headers: Mapping[str, str], data: bytes) -> None:
        status = headers.get("Status")
        if status == _NOT_FOUND:
            self._done.set_result(None)
            return
        if status == _NO_RESPONDERS:
            raise nats.errors.NoRespondersError
        before = self._messages[-1].sequence if self._messages else 0
        if status == _END_OF_PAGE:
            self._left = int(headers.get("Nats-Num-Pending", "0"))
        else:
            self._messages.append(_stored(headers, data))
        if int(headers.get("Nats-Last-Sequence", "0")) != before:
            raise UnavailableError("NATS sent an answer of which a part is missing")
        if status == _END_OF_PAGE:
            self._done.set_result(None)

    async def page(self, silence_sec: float) -> MessagePage:
        """Return the complete page; TimeoutError after so long without an answer."""
        while not self._done.done():
            known = len(self._messages)
            await asyncio.wait([self._done], timeout=silence_sec)
            if not self._done.done() and len(self._messages) == known:
                raise TimeoutError(f"no answer for {silence_sec} s")
        self._done.result()
        return MessagePage(self._messages, self._left)


class _LeaderMessage(msgspec.Struct):
    seq: int
    subject: str
    hdrs: str = ""
    data: str = ""


class _LeaderError(msgspec.Struct):
    code: int
    err_code: int = 0
    description: str = ""


class _LeaderAnswer(msgspec.Struct):
    message: _LeaderMessage | None = None
    error: _LeaderError | None = None


def _from_leader(answer: bytes) -> StoredMessage | None:
    decoded = msgspec.json.decode(answer, type=_LeaderAnswer)
    if decoded.message is None:
        if decoded.error is not None and decoded.error.err_code == _NO_SUCH_MESSAGE:
            return None
        reason = decoded.error.description if decoded.error is not None else "no reason"
        raise UnavailableError(f"NATS refused to read a message: {reason:.80}")
    headers = parsed_headers(base64.b64decode(decoded.message.hdrs))
    return StoredMessage(decoded.message.seq, headers, base64.b64decode(decoded.message.data), decoded.message.subject)


def _stored(headers: Mapping[str, str], data: bytes) -> StoredMessage:
    sequence = headers.get("Nats-Sequence")
    if sequence is None:
        reason = f"{headers.get('Status', '')} {headers.get('Description', '')}"
        raise UnavailableError(f"NATS refused to read a message: {reason:.80}")
    return StoredMessage(int(sequence), headers, data, headers["Nats-Subject"])

"""The NATS client as we need it: nothing is sent later than it was asked for, and asking is cheap.

Much of what a run costs on this side of the wire is asking the server to store something. The library gives every
request a timer, a random name, a queue and a task to pass through. :meth:`NatsClient.ask` does with a counter, one
timer for all, and an answer that is handed over where it is read. So do subscriptions made by :meth:`listen`, for
whatever can be taken in at once: that something happened, or a job.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import nats.errors
from nats.aio.client import PING_PROTO, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from typing_extensions import override

from pyoco_server.adapters.jetstream.parsing import MessageParser

_log = logging.getLogger(__name__)

_VERSION: Final = "NATS/1.0"
_SERVERS_OWN: Final = frozenset({"Status", "Description"})
"""Only the server's first line says these; a stored message that has headers of such a name is not an answer."""
_HEADER_LINE: Final = b"NATS/1.0\r\n"
_NOBODY_THERE: Final = b"NATS/1.0 503"

AWAY_SEC: Final = 0.25
"""Who is woken so much later than they wanted to be has not heard anything meanwhile, because nobody did anything."""

READING_SEC: Final = 0.05
"""How long it takes at most to read what has come in meanwhile."""


class Answer(NamedTuple):
    """What came back, as it came; ``headers`` are not parsed."""

    data: bytes
    headers: bytes | None


T = TypeVar("T")

Settle = Callable[[asyncio.Future[T], Answer], None]
"""Called where an answer is read: sees to it that the future is settled, now or later. What it raises is what whoever
asked is told."""

Told = Callable[[bytes, bytes, bytes | None, bytes], None]
"""Called with the subject, the data and the headers of a message, and where to answer, where it is read: must be quick
and not raise."""


class NatsClient(Client):
    """The client, without its ways to send something later than it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = MessageParser(self)
        self._told: dict[int, Told] = {}
        self._asked: dict[bytes, tuple[asyncio.Future[Any], Settle[Any]]] = {}
        self._asked_at: deque[tuple[float, bytes]] = deque()
        self._questions = 0
        self._inbox: str | None = None
        self._token_at = 0
        self._answering: asyncio.Lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0

    # --- Asking ------------------------------------------------------------------------------------------------------

    async def ask(self, subject: str, payload: bytes, headers: bytes, *, timeout: float) -> Answer:  # noqa: ASYNC109
        """Send and wait for the one answer. ``headers`` as :func:`header_block` makes them; empty if there are none.

        All who ask on a connection must do so with the same timeout. The subject must be one the caller has checked.
        """
        return await self.ask_for(subject, payload, headers, _at_once, timeout=timeout)

    async def ask_for(
        self,
        subject: str,
        payload: bytes,
        headers: bytes,
        settle: Settle[T],
        *,
        timeout: float,  # noqa: ASYNC109 of all who ask, by one timer
    ) -> T:
        """The same for what ``settle`` makes of the answer: the timeout is for the answer, not for what comes of it."""
        self._refuse_unless_connected()
        if self._inbox is None:
            await self._open_inbox()
            self._refuse_unless_connected()
        if len(payload) + len(headers) > self._max_payload:
            raise nats.errors.MaxPayloadError
        self._questions += 1
        token = b"%d" % self._questions
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        self._asked[token] = answered, settle
        self._asked_at.append((loop.time() + timeout, token))
        if self._timer is None:
            self._wake_at(loop, loop.time() + timeout)
        if self._send(_command(subject, f"{self._inbox}{self._questions}", headers, payload), len(payload)):
            await self._flush_pending()
        try:
            return await answered
        finally:
            del answered  # it holds the error, whose traceback holds what is here

    async def tell(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        """Send, and wait for nothing; lost if the connection breaks. What is answered comes in under ``reply``."""
        self._refuse_unless_connected()
        if self._send(_command(subject, reply, b"", payload), len(payload)):
            await self._flush_pending()

    async def listen(self, subject: str, told: Told) -> Subscription:
        """Be told of messages where they are read; leave by :meth:`leave`."""
        number = self._sid + 1  # what the library will call it; it may be spoken to before we are back
        self._told[number] = told
        try:
            return await self.subscribe(subject)
        except BaseException:
            self._told.pop(number, None)
            raise

    async def leave(self, subscription: Subscription) -> None:
        """Be told no more."""
        self._told.pop(subscription._id, None)  # noqa: SLF001
        if not self.is_closed:
            await subscription.unsubscribe()

    async def _open_inbox(self) -> None:
        async with self._answering:
            if self._inbox is None:
                inbox = f"{self.new_inbox()}."
                self._token_at = len(inbox)
                await self.listen(f"{inbox}*", self._answer)
                self._inbox = inbox

    def _answer(self, subject: bytes, data: bytes, headers: bytes | None, _reply: bytes) -> None:
        answered, settle = self._asked.pop(subject[self._token_at :], _NOBODY_ASKED)
        if answered is None or answered.done():
            return
        if headers is not None and headers.startswith(_NOBODY_THERE):
            answered.set_exception(nats.errors.NoRespondersError())
            return
        try:
            settle(answered, Answer(data, headers))
        except Exception as error:  # noqa: BLE001 told to whoever asked
            # Without how it came here, which leads back to the future: nothing is left to the garbage collector.
            answered.set_exception(error.with_traceback(None))

    def _wake_at(self, loop: asyncio.AbstractEventLoop, moment: float) -> None:
        self._timer, self._wakes_at = loop.call_at(moment, self._give_up), moment

    def _give_up(self) -> None:
        """The time of the oldest questions is up, unless we were away: then their answers may lie here unread."""
        loop, self._timer = asyncio.get_running_loop(), None
        if loop.time() - self._wakes_at > AWAY_SEC:
            self._wake_at(loop, loop.time() + READING_SEC)
            return
        while self._asked_at and (self._asked_at[0][0] <= loop.time() or self._asked_at[0][1] not in self._asked):
            answered, _ = self._asked.pop(self._asked_at.popleft()[1], _NOBODY_ASKED)
            if answered is not None and not answered.done():
                answered.set_exception(nats.errors.TimeoutError())
        if self._asked_at:
            self._wake_at(loop, self._asked_at[0][0])

    def _refuse_unless_connected(self) -> None:
        if self._status == Client.CONNECTED:  # as it nearly always is
            return
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if self.is_draining_pubs:
            raise nats.errors.ConnectionDrainingError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError

    def _send(self, command: bytes, size: int) -> bool:
        """Have it sent; returns whether whoever sends has to be told."""
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        self._pending.append(command)
        self._pending_data_size += len(command)
        return self._flush_queue is not None and self._flush_queue.empty()

    # --- What the library does otherwise -----------------------------------------------------------------------------

    def heard(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
        """Hand a message to whoever listens, if they take it where it is read; ``number`` is the subscription's."""
        told = self._told.get(number)
        if told is None:
            return False
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            told(subject, data, headers, reply)
        except Exception:  # noqa: BLE001 told; one who cannot cope with a message must not cost all others the connection
            _log.exception("a message on '%s' could not be taken", subject.decode(errors="replace"))
        return True

    @override
    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if not self.heard(sid, subject, reply, data, headers):
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]  # there may be none

    @override
    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Ask for a sign of life behind what was said before, so that whoever flushes has been heard.

        The library's would overtake it.
        """
        self._pongs.append(asyncio.get_running_loop().create_future() if future is None else future)
        self._pending.append(PING_PROTO)
        self._pending_data_size += len(PING_PROTO)
        await self._flush_pending()

    @override
    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Ask, if there is a connection; a request that cannot be sent would leave a waiting answer behind."""
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        return await super().request(subject, payload, timeout=timeout, old_style=old_style, headers=headers)

    @override
    async def _process_op_err(self, e: Exception) -> None:
        """The connection broke. The library would first wait for the peer to take what is left, perhaps for ever."""
        if self.is_connected:
            self.break_off()
        await super()._process_op_err(e)

    def break_off(self) -> None:
        """Let go of the socket and of what is in its buffer."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def forget_unsettled(self) -> None:
        """The connection broke: nothing unsent is sent later (subscriptions are repeated), and no answer will come."""
        self._pending = []
        self._pending_data_size = 0
        asked, self._asked = self._asked, {}
        self._asked_at.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [answered for answered, _ in asked.values()]
        for answer in [*waiting, *getattr(self, "_resp_map", {}).values()]:
            if not answer.done():
                answer.set_exception(nats.errors.StaleConnectionError())

    @property
    def server_name(self) -> str:
        """What the server we are connected to is called."""
        return str(self._server_info.get("server_name", ""))

    @property
    def is_in_cluster(self) -> bool:
        """Is the server we are connected to one of several?"""
        return bool(self._server_info.get("cluster"))

    def tasks(self) -> set[asyncio.Task[Any]]:
        """The tasks that work for this client now."""
        own = [self._reading_task, self._ping_interval_task, self._flusher_task, self._reconnection_task]
        listening = [subscription._wait_for_msgs_task for subscription in self._subs.values()]  # noqa: SLF001 no other way
        return {task for task in [*own, *listening] if task is not None}


def _at_once(answered: asyncio.Future[Answer], answer: Answer) -> None:
    answered.set_result(answer)


_NOBODY_ASKED: Final = (None, _at_once)


def header_block(headers: Mapping[str, str]) -> bytes:
    """Headers as they are sent. Names and values must be ours: ASCII, and no line ends."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return b"%b%b\r\n" % (_HEADER_LINE, lines.encode())


def header_value(headers: bytes | None, name: bytes) -> bytes | None:
    """One value out of headers as they came; None if it is not there."""
    if headers is None:
        return None
    start = headers.find(b"\r\n%b:" % name)
    if start < 0:
        return None
    start += len(name) + 3
    return headers[start : headers.index(b"\r\n", start)].strip()


def parsed_headers(headers: bytes | None) -> dict[str, str]:
    """All headers as they came; what the server answers with in their first line is told as Status and Description."""
    if not headers:
        return {}
    first, *lines = headers.decode(errors="replace").split("\r\n")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name not in _SERVERS_OWN:
            found[name] = value.strip()
    status = first[len(_VERSION) :].strip()
    if status:
        found["Status"], _, found["Description"] = status.partition(" ")
    return found


def _command(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
    size = len(headers) + len(payload)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), reply.encode(), len(headers), size, headers, payload)

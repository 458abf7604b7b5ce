"""Pulls one job at a time from a consumer, so that no job is lost on the way.

Each request in flight has an inbox of its own. When a request is cancelled, its subscription is withdrawn, and the
server forgets the request. A job may be on its way even so, and can arrive after the server has confirmed the
withdrawal. So the inbox is read for a while: a late job goes to another request for the same consumer, or is kept a
moment for the next one. Only without a request is it returned to the queue, because each delivery counts towards the
limit.
"""

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.transport.client import InlineSubscription, parsed_headers
from pyoco_server.adapters.jetstream.transport.error_translation import NATS_ERRORS, translated
from pyoco_server.adapters.jetstream.transport.loop_clock import LoopClock
from pyoco_server.app.ports import UnavailableError

HEARTBEAT_SEC: Final = 1.0
"""How often the server confirms that a request still waits, if the request is long enough for that."""

SILENCE_SEC: Final = 2.5
"""A request with heartbeats is lost after so long without one."""

GRACE_SEC: Final = 0.25
"""How long after its end the server's last message about a request may arrive."""

_SHORTEST_SEC: Final = 0.005
"""The shortest wait of a request: the server does not answer all requests with a wait of zero."""

KEEP_SEC: Final = 0.25
"""How long a late job is kept for another request of this process."""

_LINGER_SEC: Final = 1.0
_ACK_SUBJECTS: Final = "$JS.ACK."
_NAK: Final = b"-NAK"
_HEARTBEAT: Final = b"NATS/1.0 100"
_PLAIN_ACK_TOKENS: Final = 9


class ConsumerGoneError(UnavailableError):
    """There is no consumer: it was deleted, or has not been restored yet after a restart."""


class Pulled(NamedTuple):
    """The answer to a request: a job, or the server's message about the request."""

    subject: str
    data: bytes
    headers: bytes | None
    reply: str

    @property
    def is_job(self) -> bool:
        """Whether this is a job, which can be acknowledged; a message about the request cannot."""
        return self.reply.startswith(_ACK_SUBJECTS)

    @property
    def times_delivered(self) -> int:
        """The count of deliveries, from the subject of the ACK; a domain and an account may precede the stream."""
        tokens = self.reply.split(".")
        return int(tokens[4] if len(tokens) == _PLAIN_ACK_TOKENS else tokens[6])


class _Channel:
    """An inbox, and its request in flight, if any."""

    __slots__ = (
        "adopted",
        "answer",
        "answered",
        "consumer",
        "ends_at",
        "has_heartbeats",
        "inbox",
        "last_sign",
        "since",
        "subscription",
    )

    def __init__(self, inbox: str) -> None:
        self.inbox = inbox
        self.subscription: InlineSubscription | None = None
        self.consumer = ""
        self.since = 0.0
        self.last_sign = 0.0
        self.ends_at = 0.0
        self.has_heartbeats = False
        self.answer: Pulled | None = None
        self.answered: asyncio.Future[None] | None = None
        self.adopted = False

    def begin(self, consumer: str, answered: asyncio.Future[None], timeout_sec: float, now: float) -> None:
        """A request is sent."""
        self.consumer = consumer
        self.since = self.last_sign = now
        self.ends_at = self.since + timeout_sec + GRACE_SEC
        self.has_heartbeats = timeout_sec >= 2 * HEARTBEAT_SEC
        self.answer, self.answered, self.adopted = None, answered, False

    def give_up_if_lost(self, now: float) -> None:
        """Fail the request if the server has been silent for too long."""
        lost_at = min(self.ends_at, self.last_sign + SILENCE_SEC) if self.has_heartbeats else self.ends_at
        if now >= lost_at and self.answered is not None and not self.answered.done():
            self.answered.set_exception(TimeoutError("the server did not answer a request for jobs"))

    def end(self) -> Pulled | None:
        """End the request, and return its answer once."""
        if self.answered is not None and self.answered.done() and not self.answered.cancelled():
            self.answered.exception()  # read, so that asyncio does not report it as unread
        answer, self.answer, self.answered = self.answer, None, None
        return answer

    def accept(self, message: Pulled, *, adopted: bool = False) -> bool:
        """Take an answer, or with ``adopted`` one of another request; False if the request has ended."""
        if self.answered is None or self.answered.done():
            return False
        self.answer, self.adopted = message, adopted
        self.answered.set_result(None)
        return True


class Pulls:
    """Requests for jobs on one connection; any number may be in flight."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self._stream = stream
        self._idle: list[_Channel] = []
        self._out: set[_Channel] = set()
        self._kept: dict[str, deque[Pulled]] = {}
        self._clock = LoopClock(self._give_up_lost)
        self._chores: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def next(self, consumer: str, *, timeout_sec: float) -> Pulled | None:
        """Return the next job of a consumer; None if the server says that there was none in time.

        UnavailableError if the connection broke, the request was lost, or the server refused it. ConsumerGoneError if
        there is no consumer.
        """
        if kept := self._kept.get(consumer):
            return kept.popleft()
        channel = self._idle.pop() if self._idle else await self._open()
        self._out.add(channel)
        try:
            await self._request(channel, consumer, timeout_sec)
        except BaseException:
            self._abandon(channel)
            raise
        answer = channel.end()
        if channel.adopted:
            self._abandon(channel)
        else:
            self._out.discard(channel)
            self._idle.append(channel)
        if answer is not None and answer.is_job:
            return answer
        _raise_unless_empty(answer)
        return None

    def silent_for(self, consumer: str) -> float:
        """Return for how many seconds the oldest request to a consumer has been in flight; 0 if there is none."""
        now = self._clock.now
        return max((now - channel.since for channel in self._out if channel.consumer == consumer), default=0.0)

    def interrupt(self, consumer: str) -> None:
        """End all requests to a consumer as lost."""
        for channel in self._out:
            if channel.consumer == consumer and channel.answered is not None and not channel.answered.done():
                channel.answered.set_exception(TimeoutError("interrupted"))

    async def close(self) -> None:
        """End all subscriptions; return when jobs without a request have been returned to the queue."""
        self._closing.set()
        while self._idle:
            self._abandon(self._idle.pop())
        while self._chores:
            await asyncio.wait(self._chores)
        for kept in self._kept.values():
            while kept:
                await self._return_job(kept.popleft())

    async def _open(self) -> _Channel:
        channel = _Channel(self._connection.nc.new_inbox())

        def on_message(subject: bytes, data: bytes, headers: bytes | None, reply: bytes) -> None:
            channel.last_sign = self._clock.now
            message = Pulled(subject.decode(), data, headers, reply.decode())
            if message.is_job:
                if not channel.accept(message):
                    self._pass_on(channel.consumer, message)
            elif not (headers or b"").startswith(_HEARTBEAT):
                channel.accept(message)

        with translated():
            channel.subscription = await self._connection.nc.subscribe_inline(channel.inbox, on_message)
        return channel

    async def _request(self, channel: _Channel, consumer: str, timeout_sec: float) -> None:
        """Send a request and wait for its answer; UnavailableError if it is lost."""
        timeout_sec = max(timeout_sec, _SHORTEST_SEC)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
        with translated(), self._connection.awaiting() as answered:
            channel.begin(consumer, answered, timeout_sec, self._clock.now)
            self._clock.run()
            body = _request_body(timeout_sec, has_heartbeats=channel.has_heartbeats)
            await self._connection.nc.publish_raw(subject, body, reply=channel.inbox)
            await answered

    def _give_up_lost(self, now: float) -> bool:
        """End the requests that are lost; return whether any are in flight. One timer for all: most get a job first."""
        for channel in self._out:
            channel.give_up_if_lost(now)
        return bool(self._out)

    def _abandon(self, channel: _Channel) -> None:
        """End a request whose caller has stopped waiting."""
        self._out.discard(channel)
        answer = channel.end()
        if answer is not None and answer.is_job:
            self._pass_on(channel.consumer, answer)
        self._do(self._retire(channel))

    def _pass_on(self, consumer: str, job: Pulled) -> None:
        """Give the job of an ended request to another request, or keep it a moment for the next one."""
        for channel in self._out:
            if channel.consumer == consumer and channel.accept(job, adopted=True):
                return
        self._kept.setdefault(consumer, deque()).append(job)
        asyncio.get_running_loop().call_later(KEEP_SEC, self._stop_keeping, consumer, job)

    def _stop_keeping(self, consumer: str, job: Pulled) -> None:
        kept = self._kept[consumer]
        if any(other is job for other in kept):
            kept.remove(job)
            self._do(self._return_job(job))

    async def _retire(self, channel: _Channel) -> None:
        """Have the server forget the request, and read the inbox for a while."""
        subscription, channel.subscription = channel.subscription, None
        if subscription is None:
            return
        with contextlib.suppress(TimeoutError, nats.errors.Error):
            if self._connection.is_connected:
                await self._connection.nc.withdraw(subscription)
            async with asyncio.timeout(_LINGER_SEC):
                await self._closing.wait()
                await self._connection.nc.flush()
        with contextlib.suppress(nats.errors.Error):
            await self._connection.nc.unsubscribe_inline(subscription)

    async def _return_job(self, message: Pulled) -> None:
        """Return a job to the queue; if that fails, the server delivers it again after the ack wait."""
        with contextlib.suppress(*NATS_ERRORS):
            await self._connection.nc.publish_raw(message.reply, _NAK)

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


@functools.lru_cache(maxsize=64)  # there are few different timeouts, and a request for every job
def _request_body(timeout_sec: float, *, has_heartbeats: bool) -> bytes:
    body = {"batch": 1, "expires": int(timeout_sec * 1e9)}
    if has_heartbeats:
        body["idle_heartbeat"] = int(HEARTBEAT_SEC * 1e9)
    return msgspec.json.encode(body)


def _raise_unless_empty(message: Pulled | None) -> None:
    """Accept the server's message that there was no job in time; raise any other one as an error."""
    headers = parsed_headers(message.headers if message is not None else None)
    status, description = headers.get("Status", ""), headers.get("Description", "").strip()
    if status in {"404", "408"}:
        return
    if status == "503" or "Consumer Deleted" in description:
        raise ConsumerGoneError("there is no such consumer")
    raise UnavailableError(f"the request for jobs was refused: {status} {description}")

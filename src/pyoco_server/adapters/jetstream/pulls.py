"""Asking a consumer for one job at a time, so that no job gets lost on the way.

Every request has an inbox to itself while it is out. When it is given up, the server is told to forget it; it does when
nobody listens to the inbox any more. A job may be on its way all the same, and can even come after the server confirmed
that it forgot. We go on listening for a while: a late job goes to another request for the same consumer or, kept for a
moment, to the next one. Only if there is none is it sent back, since each delivery counts towards the last.
"""

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.subscription import Subscription

from pyoco_server.adapters.jetstream.client import AWAY_SEC, parsed_headers
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.translation import NATS_ERRORS, translated
from pyoco_server.app.ports import UnavailableError

HEARTBEAT_SEC: Final = 1.0
"""How often the server says that a request still waits, if it waits long enough for that to matter."""

SILENCE_SEC: Final = 2.5
"""Without a sign for so long, a request that should show some is lost."""

GRACE_SEC: Final = 0.25
"""How long after its end the last word about a request is waited for."""

_SHORTEST_SEC: Final = 0.005
"""Even who does not want to wait waits so long: the server does not answer all requests that must not wait at all."""

KEEP_SEC: Final = 0.25
"""How long a late job waits for somebody here to ask for it."""

_TICK_SEC: Final = 0.25
"""How often it is looked whether a request got lost."""

_LINGER_SEC: Final = 1.0
_ACK_SUBJECTS: Final = "$JS.ACK."
_NAK: Final = b"-NAK"
_HEARTBEAT: Final = b"NATS/1.0 100"
_PLAIN_ACK_TOKENS: Final = 9


class ConsumerGoneError(UnavailableError):
    """There is nobody to ask: the consumer was deleted, or is not there yet after a restart."""


class Pulled(NamedTuple):
    """What came for a request: a job, or the server's word about the request."""

    subject: str
    data: bytes
    headers: bytes | None
    reply: str

    @property
    def is_job(self) -> bool:
        """A job can be acknowledged; a word from the server cannot."""
        return self.reply.startswith(_ACK_SUBJECTS)

    @property
    def times_delivered(self) -> int:
        """Where a job is acknowledged tells it; a domain and an account may stand before the stream."""
        tokens = self.reply.split(".")
        return int(tokens[4] if len(tokens) == _PLAIN_ACK_TOKENS else tokens[6])


class _Channel:
    """An inbox, and the request that is out for it, if any."""

    __slots__ = (
        "adopted",
        "answer",
        "answered",
        "consumer",
        "ends_at",
        "heard",
        "inbox",
        "shows_life",
        "since",
        "subscription",
    )

    def __init__(self, inbox: str) -> None:
        self.inbox = inbox
        self.subscription: Subscription | None = None
        self.consumer = ""
        self.since = 0.0
        self.heard = 0.0
        self.ends_at = 0.0
        self.shows_life = False
        self.answer: Pulled | None = None
        self.answered: asyncio.Future[None] | None = None
        self.adopted = False

    def begin(self, consumer: str, answered: asyncio.Future[None], timeout_sec: float) -> None:
        """A request goes out."""
        self.consumer = consumer
        self.since = self.heard = asyncio.get_running_loop().time()
        self.ends_at = self.since + timeout_sec + GRACE_SEC
        self.shows_life = timeout_sec >= 2 * HEARTBEAT_SEC
        self.answer, self.answered, self.adopted = None, answered, False

    def give_up_if_lost(self, now: float) -> None:
        """Nothing was heard for longer than can be: let whoever waits know."""
        patience_ends = min(self.ends_at, self.heard + SILENCE_SEC) if self.shows_life else self.ends_at
        if now >= patience_ends and self.answered is not None and not self.answered.done():
            self.answered.set_exception(TimeoutError("nothing was heard of a request for jobs"))

    def end(self) -> Pulled | None:
        """The request is over; what came is handed out once."""
        if self.answered is not None and self.answered.done() and not self.answered.cancelled():
            self.answered.exception()  # so that nobody complains that nobody looked
        answer, self.answer, self.answered = self.answer, None, None
        return answer

    def accept(self, message: Pulled, *, adopted: bool = False) -> bool:
        """Take the answer, even if it is ``adopted``, meant for another; False if nobody waits for one."""
        if self.answered is None or self.answered.done():
            return False
        self.answer, self.adopted = message, adopted
        self.answered.set_result(None)
        return True


class Pulls:
    """Requests for jobs on one connection; any number may be out at once."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self._stream = stream
        self._idle: list[_Channel] = []
        self._out: set[_Channel] = set()
        self._kept: dict[str, deque[Pulled]] = {}
        self._ticking: asyncio.TimerHandle | None = None
        self._ticks_at = 0.0
        self._chores: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def next(self, consumer: str, *, timeout_sec: float) -> Pulled | None:
        """The next job of a consumer; None if the server says there was none in time.

        UnavailableError if it did not say: the connection broke, the request got lost, or it was refused.
        ConsumerGoneError if there is nobody to ask.
        """
        if kept := self._kept.get(consumer):
            return kept.popleft()
        channel = self._idle.pop() if self._idle else await self._open()
        self._out.add(channel)
        try:
            await self._request(channel, consumer, timeout_sec)
        except BaseException:
            self._give_up(channel)
            raise
        answer = channel.end()
        if channel.adopted:
            self._give_up(channel)
        else:
            self._out.discard(channel)
            self._idle.append(channel)
        if answer is not None and answer.is_job:
            return answer
        _raise_unless_empty(answer)
        return None

    def silent_for(self, consumer: str) -> float:
        """How long the oldest request to a consumer has been out without a job, in seconds; 0 if none is."""
        now = asyncio.get_running_loop().time()
        return max((now - channel.since for channel in self._out if channel.consumer == consumer), default=0.0)

    def interrupt(self, consumer: str) -> None:
        """Let all requests to a consumer end as lost."""
        for channel in self._out:
            if channel.consumer == consumer and channel.answered is not None and not channel.answered.done():
                channel.answered.set_exception(TimeoutError("given up"))

    async def close(self) -> None:
        """Stop listening; returns when jobs nobody asked for any more have been sent back."""
        self._closing.set()
        while self._idle:
            self._give_up(self._idle.pop())
        while self._chores:
            await asyncio.wait(self._chores)
        for kept in self._kept.values():
            while kept:
                await self._send_back(kept.popleft())

    async def _open(self) -> _Channel:
        channel = _Channel(self._connection.nc.new_inbox())

        def told(subject: bytes, data: bytes, headers: bytes | None, reply: bytes) -> None:
            channel.heard = asyncio.get_running_loop().time()
            message = Pulled(subject.decode(), data, headers, reply.decode())
            if message.is_job:
                if not channel.accept(message):
                    self._find_taker(channel.consumer, message)
            elif not (headers or b"").startswith(_HEARTBEAT):
                channel.accept(message)

        with translated():
            channel.subscription = await self._connection.nc.listen(channel.inbox, told)
        return channel

    async def _request(self, channel: _Channel, consumer: str, timeout_sec: float) -> None:
        """Send a request and wait until it is answered; UnavailableError if it got lost."""
        timeout_sec = max(timeout_sec, _SHORTEST_SEC)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
        with translated(), self._connection.awaiting() as answered:
            channel.begin(consumer, answered, timeout_sec)
            if self._ticking is None:
                self._tick_later()
            body = _request_body(timeout_sec, shows_life=channel.shows_life)
            await self._connection.nc.tell(subject, body, reply=channel.inbox)
            await answered

    def _tick(self) -> None:
        """One timer for all that is out: a job comes long before it, as a rule, and none has to be taken back."""
        now, self._ticking = asyncio.get_running_loop().time(), None
        if now - self._ticks_at <= AWAY_SEC:  # else we were away, and what has come may lie here unread
            for channel in self._out:
                channel.give_up_if_lost(now)
        if self._out:
            self._tick_later()

    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticks_at = loop.time() + _TICK_SEC
        self._ticking = loop.call_at(self._ticks_at, self._tick)

    def _give_up(self, channel: _Channel) -> None:
        """Nobody waits for the answer any more."""
        self._out.discard(channel)
        answer = channel.end()
        if answer is not None and answer.is_job:
            self._find_taker(channel.consumer, answer)
        self._do(self._retire(channel))

    def _find_taker(self, consumer: str, job: Pulled) -> None:
        """A job came for a request that was given up: let another have it, or keep it for the next for a moment."""
        for channel in self._out:
            if channel.consumer == consumer and channel.accept(job, adopted=True):
                return
        self._kept.setdefault(consumer, deque()).append(job)
        asyncio.get_running_loop().call_later(KEEP_SEC, self._stop_keeping, consumer, job)

    def _stop_keeping(self, consumer: str, job: Pulled) -> None:
        kept = self._kept[consumer]
        if any(other is job for other in kept):
            kept.remove(job)
            self._do(self._send_back(job))

    async def _retire(self, channel: _Channel) -> None:
        """Let the server forget the request, but go on listening for a while."""
        subscription, channel.subscription = channel.subscription, None
        if subscription is None:
            return
        with contextlib.suppress(TimeoutError, nats.errors.Error):
            if self._connection.is_connected:
                await self._connection.nc._send_unsubscribe(subscription._id)  # noqa: SLF001 the public way stops listening
            async with asyncio.timeout(_LINGER_SEC):
                await self._closing.wait()
                await self._connection.nc.flush()
        with contextlib.suppress(nats.errors.Error):
            await self._connection.nc.leave(subscription)

    async def _send_back(self, message: Pulled) -> None:
        """Let somebody else have the job now; should that fail, it comes back after the ack wait."""
        with contextlib.suppress(*NATS_ERRORS):
            await self._connection.nc.tell(message.reply, _NAK)

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


@functools.lru_cache(maxsize=64)  # there are a few timeouts, and a request for every job
def _request_body(timeout_sec: float, *, shows_life: bool) -> bytes:
    body = {"batch": 1, "expires": int(timeout_sec * 1e9)}
    if shows_life:
        body["idle_heartbeat"] = int(HEARTBEAT_SEC * 1e9)
    return msgspec.json.encode(body)


def _raise_unless_empty(message: Pulled | None) -> None:
    """The server's last word about a request: that there was nothing in time, or an error."""
    headers = parsed_headers(message.headers if message is not None else None)
    status, told = headers.get("Status", ""), headers.get("Description", "").strip()
    if status in {"404", "408"}:
        return
    if status == "503" or "Consumer Deleted" in told:
        raise ConsumerGoneError("the consumer is not there")
    raise UnavailableError(f"the request for jobs was refused: {status} {told}")

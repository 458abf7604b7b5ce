"""The queue on JetStream: a stream of jobs, a consumer a tag, and pulls that mend themselves."""

import asyncio
import contextlib
from typing import Final

from nats.js.api import Header

from pyoco_server.adapters.jetstream.connection import Connection, message_size
from pyoco_server.adapters.jetstream.consumers import Consumer, Consumers, Settings
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.pulls import GRACE_SEC, ConsumerGoneError, Pulled, Pulls
from pyoco_server.adapters.jetstream.translation import MissingError, translated
from pyoco_server.app.ports import TooLargeError, UnavailableError

_REFRESH_SEC: Final = 30.0
_MAX_EXPIRES_SEC: Final = 30.0
_FIRST_PAUSE_SEC: Final = 0.02
_LONGEST_PAUSE_SEC: Final = 0.5
_SECOND_LOOK_SEC: Final = 0.2


class JetStreamDelivery:
    """A job in a worker's hands. All it says to the queue is confirmed by the queue."""

    __slots__ = (
        "_ack_wait_sec",
        "_connection",
        "_held_until",
        "_message",
        "body",
        "is_last",
        "subject",
        "tag",
        "times_delivered",
    )

    def __init__(self, connection: Connection, message: Pulled, tag: str, settings: Settings) -> None:
        self._connection = connection
        self._message = message
        self._ack_wait_sec = settings.ack_wait_sec
        self._held_until = asyncio.get_running_loop().time() + self._ack_wait_sec
        self.tag = tag
        self.subject = message.subject
        self.body = message.data
        self.times_delivered = message.times_delivered
        self.is_last = 0 < settings.max_deliver <= self.times_delivered

    async def ack(self) -> None:
        """Take it out of the queue."""
        await self._say(b"+ACK")

    async def nak(self, delay_sec: float) -> None:
        """Deliver it again after so long, unless it may be in other hands by now: from those it would be taken."""
        if asyncio.get_running_loop().time() > self._held_until:
            return
        await self._say(b'-NAK {"delay":%d}' % int(delay_sec * 1e9) if delay_sec > 0 else b"-NAK")

    async def term(self) -> None:
        """Never deliver it again."""
        await self._say(b"+TERM")

    async def in_progress(self) -> None:
        """Begin the ack wait anew."""
        said_at = asyncio.get_running_loop().time()
        await self._say(b"+WPI")
        if said_at <= self._held_until:  # else it may have been too late, and nobody tells
            self._held_until = said_at + self._ack_wait_sec

    async def _say(self, word: bytes) -> None:
        await self._connection.say(self._message.reply, word)


class _Binding:
    """What is known of the consumer of a tag, and since when."""

    __slots__ = ("consumer", "read_at")

    def __init__(self, consumer: Consumer, read_at: float) -> None:
        self.consumer = consumer
        self.read_at = read_at


class JetStreamWorkQueue:
    """Jobs by tag on the stream of jobs.

    A pull finds its own way back after a broken connection, a restart of the server and a deleted consumer. Should
    there be a case it does not notice, :meth:`stalled` tells and :meth:`rebind` helps.
    """

    def __init__(self, connection: Connection, names: Names, *, stall_sec: float = 2.0) -> None:
        """``stall_sec``: a request that is out for so long while jobs wait for it has stalled."""
        self._connection = connection
        self._names = names
        self._stall_sec = stall_sec
        self._consumers = Consumers(connection, names)
        self._pulls = Pulls(connection, names.work_stream)
        self._bindings: dict[str, _Binding] = {}
        self._binding_locks: dict[str, asyncio.Lock] = {}

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        """Queue a job; returns when it is stored. TooLargeError if the server would not take it."""
        subject, headers = self._names.work_subject(tag), {Header.MSG_ID.value: dedup_id}
        size = message_size(body, headers)
        if size > self._connection.max_payload:
            raise TooLargeError(f"a job of {size} bytes is too large; at most {self._connection.max_payload} will do")
        try:
            await self._connection.publish(subject, body, headers)
        except TooLargeError as error:
            raise TooLargeError(
                f"a job of {size} bytes is larger than the stream {self._names.work_stream} takes{await self._most()}: "
                "send less in params and in the flow.yaml, or raise max_msg_size of that stream"
            ) from error

    async def _most(self) -> str:
        """The stream's limit in words; nothing if it cannot be found out now."""
        with contextlib.suppress(UnavailableError), translated():
            info = await self._connection.js.stream_info(self._names.work_stream)
            return f" (max_msg_size is {info.config.max_msg_size})"
        return ""

    async def prepare(self, tag: str) -> None:
        """Make sure that there is a consumer for the tag; one that exists stays as it is."""
        await self._bind(tag)

    async def pull(self, tag: str, *, timeout_sec: float) -> JetStreamDelivery | None:
        """Wait for the next job of the tag; while the queue is out of reach, it is tried again until the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_sec
        pause = _FIRST_PAUSE_SEC
        while True:
            try:
                delivery = await self._pull_once(tag, max(deadline - loop.time(), 0.0))
            except UnavailableError:
                left = deadline - loop.time()
                if left <= 0 or self._connection.is_closed:
                    raise
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE_SEC)
                continue
            if delivery is not None or loop.time() >= deadline:
                return delivery

    async def backlog(self, tag: str) -> int:
        """How many jobs of the tag nobody has pulled yet; the newest may be missing for a moment."""
        subject, binding = self._names.work_subject(tag), self._bindings.get(tag)
        consumers = self._consumers
        consumer = await (consumers.find(binding.consumer.name) if binding else consumers.of_tag(tag))
        if consumer is not None:
            return consumer.num_pending
        try:
            with translated():
                info = await self._connection.js.stream_info(self._names.work_stream, subjects_filter=subject)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.work_stream}") from error
        return (info.state.subjects or {}).get(subject, 0)

    async def stalled(self, tag: str) -> bool:
        """Do jobs of the tag wait although a pull has been waiting for them, and nothing holds them back?"""
        if not await self._seems_stalled(tag):
            return False
        await asyncio.sleep(_SECOND_LOOK_SEC)  # a job may just have come, and be on its way
        return await self._seems_stalled(tag)

    async def rebind(self, tag: str) -> None:
        """Find or create the consumer of the tag anew, and let all pulls that wait for it ask again."""
        known = self._bindings.get(tag)
        if known is not None:
            self._pulls.interrupt(known.consumer.name)
        await self._bind(tag)

    async def close(self) -> None:
        """Call this when nobody pulls any more; returns when jobs on their way to cancelled pulls were sent back."""
        await self._pulls.close()

    async def _seems_stalled(self, tag: str) -> bool:
        binding = self._bindings.get(tag)
        if binding is None or self._pulls.silent_for(binding.consumer.name) < self._stall_sec:
            return False
        consumer = await self._consumers.find(binding.consumer.name)
        return consumer is None or (consumer.num_pending > 0 and not consumer.holds_back)

    async def _pull_once(self, tag: str, timeout_sec: float) -> JetStreamDelivery | None:
        """Ask once. None may come early, if the consumer or we limit how long a request may wait."""
        consumer = self._known(tag)
        if consumer is None:
            with translated():
                async with asyncio.timeout(timeout_sec + GRACE_SEC):
                    consumer = await self._bind(tag)
        wait = min(timeout_sec, consumer.config.max_expires_sec or _MAX_EXPIRES_SEC, _MAX_EXPIRES_SEC)
        try:
            message = await self._pulls.next(consumer.name, timeout_sec=wait)
        except ConsumerGoneError:
            self._bindings.pop(tag, None)
            raise
        # Nothing may be awaited from here on: a cancelled pull would take the job with it.
        return JetStreamDelivery(self._connection, message, tag, consumer.config) if message else None

    def _known(self, tag: str, *, since: float | None = None) -> Consumer | None:
        """The consumer of the tag as we know it, if we know it well enough: its settings may change at any time."""
        binding = self._bindings.get(tag)
        oldest = asyncio.get_running_loop().time() - _REFRESH_SEC if since is None else since
        return binding.consumer if binding is not None and binding.read_at >= oldest else None

    async def _bind(self, tag: str) -> Consumer:
        """Find or create the consumer of the tag; those who want the same at the same time share the answer."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._binding_locks.setdefault(tag, asyncio.Lock()):
            consumer = self._known(tag, since=asked_at)
            if consumer is None:
                consumer = await self._consumers.ensure(tag)
                self._bindings[tag] = _Binding(consumer, loop.time())
            return consumer

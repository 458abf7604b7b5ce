"""The queue on JetStream: a stream of jobs, one consumer for each tag, and pulls that recover by themselves."""

import asyncio
import contextlib
from typing import Final

from nats.js.api import Header

from pyoco_server.adapters.jetstream.durability.connection import Connection, message_size
from pyoco_server.adapters.jetstream.primitives.consumers import Consumers, LiveConsumer, TagConsumer
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.pulls import GRACE_SEC, ConsumerGoneError, Pulled, Pulls
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError, translated
from pyoco_server.app.ports import TooLargeError, UnavailableError

_REFRESH_SEC: Final = 30.0
_MAX_EXPIRES_SEC: Final = 30.0
_FIRST_PAUSE_SEC: Final = 0.02
_LONGEST_PAUSE_SEC: Final = 0.5
_SECOND_LOOK_SEC: Final = 0.2


class JetStreamDelivery:
    """A job that was delivered to a worker. The server confirms every answer about it."""

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

    def __init__(self, connection: Connection, message: Pulled, tag: str, settings: LiveConsumer) -> None:
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
        """Remove it from the queue."""
        await self._answer(b"+ACK")

    async def nak(self, delay_sec: float) -> None:
        """Have it delivered again after a delay; no effect after the ack wait, when another worker may have it."""
        if asyncio.get_running_loop().time() > self._held_until:
            return
        await self._answer(b'-NAK {"delay":%d}' % int(delay_sec * 1e9) if delay_sec > 0 else b"-NAK")

    async def term(self) -> None:
        """Never deliver it again."""
        await self._answer(b"+TERM")

    async def in_progress(self) -> None:
        """Restart the ack wait."""
        sent_at = asyncio.get_running_loop().time()
        await self._answer(b"+WPI")
        if sent_at <= self._held_until:  # else it may have been too late, which the server does not report
            self._held_until = sent_at + self._ack_wait_sec

    async def _answer(self, word: bytes) -> None:
        await self._connection.confirmed(self._message.reply, word)


class _Binding:
    """A consumer of a tag, and when it was read."""

    __slots__ = ("consumer", "read_at")

    def __init__(self, consumer: TagConsumer, read_at: float) -> None:
        self.consumer = consumer
        self.read_at = read_at


class JetStreamWorkQueue:
    """Jobs by tag on the stream of jobs.

    A pull recovers by itself from a broken connection, a restart of the server and a deleted consumer. For cases that
    it does not notice, :meth:`stalled` detects that jobs wait, and :meth:`rebind` ends the pulls.
    """

    def __init__(self, connection: Connection, names: Names, *, stall_sec: float = 2.0) -> None:
        """``stall_sec``: a request that is in flight for so long while jobs wait has stalled."""
        self._connection = connection
        self._names = names
        self._stall_sec = stall_sec
        self._consumers = Consumers(connection, names)
        self._pulls = Pulls(connection, names.work_stream)
        self._bindings: dict[str, _Binding] = {}
        self._binding_locks: dict[str, asyncio.Lock] = {}

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        """Queue a job durably; TooLargeError if the server would reject it."""
        subject, headers = self._names.work_subject(tag), {Header.MSG_ID.value: dedup_id}
        size = message_size(body, headers)
        if size > self._connection.max_payload:
            raise TooLargeError(
                f"a job of {size} bytes is too large; the server accepts at most {self._connection.max_payload}"
            )
        try:
            await self._connection.publish(subject, body, headers)
        except TooLargeError as error:
            raise TooLargeError(
                f"a job of {size} bytes is too large for the stream {self._names.work_stream}{await self._most()}: "
                "send less in params and in the flow.yaml, or raise max_msg_size of that stream"
            ) from error

    async def _most(self) -> str:
        """Return the stream's limit as text; an empty one if NATS does not answer now."""
        with contextlib.suppress(UnavailableError), translated():
            info = await self._connection.js.stream_info(self._names.work_stream)
            return f" (max_msg_size is {info.config.max_msg_size})"
        return ""

    async def prepare(self, tag: str) -> None:
        """Create the consumer of the tag if there is none; an existing one stays as it is."""
        await self._bind(tag)

    async def pull(self, tag: str, *, timeout_sec: float) -> JetStreamDelivery | None:
        """Return the next job of the tag; while NATS cannot be reached, try again until the time is up."""
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
        """Return how many jobs of the tag wait for a worker; the newest may be missing for a moment."""
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
        """Return whether jobs of the tag wait although a pull is in flight, and no setting holds them back."""
        if not await self._seems_stalled(tag):
            return False
        await asyncio.sleep(_SECOND_LOOK_SEC)  # a job may be on its way
        return await self._seems_stalled(tag)

    async def rebind(self, tag: str) -> None:
        """Find or create the consumer of the tag again, and have all pulls from it send new requests."""
        known = self._bindings.get(tag)
        if known is not None:
            self._pulls.interrupt(known.consumer.name)
        await self._bind(tag)

    async def close(self) -> None:
        """Return when jobs on their way to cancelled pulls are back in the queue. There must be no pulls any more."""
        await self._pulls.close()

    async def _seems_stalled(self, tag: str) -> bool:
        binding = self._bindings.get(tag)
        if binding is None or self._pulls.silent_for(binding.consumer.name) < self._stall_sec:
            return False
        consumer = await self._consumers.find(binding.consumer.name)
        return consumer is None or (consumer.num_pending > 0 and not consumer.holds_back)

    async def _pull_once(self, tag: str, timeout_sec: float) -> JetStreamDelivery | None:
        """Send one request. It may end early without a job, if the consumer or we limit its time."""
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
        # Nothing may be awaited from here on: a cancelled pull would lose the job.
        return JetStreamDelivery(self._connection, message, tag, consumer.config) if message else None

    def _known(self, tag: str, *, since: float | None = None) -> TagConsumer | None:
        """Return the known consumer of the tag if it was read recently: its settings may change at any time."""
        binding = self._bindings.get(tag)
        oldest = asyncio.get_running_loop().time() - _REFRESH_SEC if since is None else since
        return binding.consumer if binding is not None and binding.read_at >= oldest else None

    async def _bind(self, tag: str) -> TagConsumer:
        """Find or create the consumer of the tag; concurrent calls share the result."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._binding_locks.setdefault(tag, asyncio.Lock()):
            consumer = self._known(tag, since=asked_at)
            if consumer is None:
                consumer = await self._consumers.ensure(tag)
                self._bindings[tag] = _Binding(consumer, loop.time())
            return consumer

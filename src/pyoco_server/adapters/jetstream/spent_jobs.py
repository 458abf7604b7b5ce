"""Jobs whose deliveries are used up: the server neither delivers them again nor removes them from the stream.

It tells of each once, in an advisory, at the next pull of somebody. What was told while nobody listened is found by
counting: whatever of a tag is in the stream and neither waits to be delivered nor is out is one of them.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.consumers import Consumer, Consumers
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.translation import MissingError, RefusedError, translated
from pyoco_server.app.ports import UnavailableError, Unsubscribe
from pyoco_server.app.ports.work_queue import OnSpent, SpentJob

_GONE: Final = (10057, 10043)
"""How the server says that there is no such message: at the ends of the stream, and amid it."""


class _Advisory(msgspec.Struct):
    stream_seq: int
    deliveries: int = 0


class JetStreamSpentJobs:
    """What is left in the stream of jobs; a job's number is its sequence there."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._consumers = Consumers(connection, names)
        # Only the leader of a queue with several replicas knows what is gone from it.
        self._reader = StreamReader(connection, names.work_stream, leader=True)
        self._leaving: set[asyncio.Task[None]] = set()

    async def subscribe(self, on_spent: OnSpent) -> Unsubscribe:
        """Be told of what the server tells of; it is listened to again by itself when a connection comes back."""

        async def told(message: Msg) -> None:
            advisory = msgspec.json.decode(message.data, type=_Advisory)
            on_spent(advisory.stream_seq, advisory.deliveries)

        advisories = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self._names.work_stream}.*"
        with translated():
            subscription = await self._connection.nc.subscribe(advisories, cb=told)

        async def leave() -> None:
            if not self._connection.is_closed:
                await subscription.unsubscribe()

        def unsubscribe() -> None:
            task = asyncio.get_running_loop().create_task(leave())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

        return unsubscribe

    async def get(self, number: int, times_delivered: int) -> SpentJob | None:
        """The job of which was told; None if it is gone from the stream, or is not of a tag."""
        found = await self._reader.first(f"{self._names.work_prefix}.>", start=number)
        return self._job(found, times_delivered) if found is not None and found.sequence == number else None

    async def look(self, limit: int) -> Sequence[SpentJob]:
        """Ask for two figures of each tag, and read only where they do not agree."""
        found: list[SpentJob] = []
        try:
            consumers = await self._consumers.all()
            stored = await self._stored()
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.work_stream}") from error
        for consumer in consumers:
            accounted = consumer.num_pending + consumer.num_ack_pending
            if consumer.config.max_deliver > 0 and stored.get(consumer.config.filter_subject, 0) > accounted:
                found += await self._left_by(consumer, limit)
        return found

    async def remove(self, number: int) -> bool:
        """Delete the message; False if it is gone already."""
        request = msgspec.json.encode({"seq": number, "no_erase": True})
        try:
            await self._connection.request(f"STREAM.MSG.DELETE.{self._names.work_stream}", request)
        except RefusedError as error:
            if error.err_code not in _GONE:
                raise
            return False
        return True

    async def _stored(self) -> dict[str, int]:
        """How many messages there are of each tag; of tags that have any."""
        everything = f"{self._names.work_prefix}.*"
        with translated():
            info = await self._connection.js.stream_info(self._names.work_stream, subjects_filter=everything)
        return info.state.subjects or {}

    async def _left_by(self, consumer: Consumer, limit: int) -> list[SpentJob]:
        """What the consumer has delivered and is still there. Below its ack floor nothing is out any more."""
        last = consumer.delivered.stream_seq
        certain = last if consumer.num_ack_pending == 0 else consumer.ack_floor.stream_seq
        found: list[SpentJob] = []
        start = 1
        while len(found) < limit:
            message = await self._reader.first(consumer.config.filter_subject, start=start)
            if message is None or message.sequence > last:
                break
            job = self._job(message, consumer.config.max_deliver)
            if job is not None:
                found.append(job._replace(is_certain=message.sequence <= certain))
            start = message.sequence + 1
        return found

    def _job(self, message: StoredMessage, times_delivered: int) -> SpentJob | None:
        tag = message.subject.removeprefix(f"{self._names.work_prefix}.")
        if not tag or "." in tag:
            return None  # nobody can have queued it for a worker of ours
        return SpentJob(message.sequence, tag, message.subject, message.data, times_delivered)

"""Jobs whose deliveries are exhausted: the server neither delivers them again nor removes them from the stream.

It announces each in one advisory, at the next pull from the consumer. Jobs whose advisory was missed are found by
counting: a job of a tag that is in the stream, is not in flight and does not wait for delivery is exhausted.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.consumers import Consumers, TagConsumer
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError, RefusedError, translated
from pyoco_server.app.ports import UnavailableError, Unsubscribe
from pyoco_server.app.ports.work_queue import ExhaustedJob, OnExhausted

_GONE: Final = (10057, 10043)
"""The server's errors for a message that does not exist: at the ends of the stream, and within it."""


class _Advisory(msgspec.Struct):
    stream_seq: int
    deliveries: int = 0


class JetStreamExhaustedJobs:
    """The exhausted jobs in the stream of jobs; a job's number is its sequence there."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._consumers = Consumers(connection, names)
        # With several replicas, only the leader knows which jobs have been removed.
        self._reader = StreamReader(connection, names.work_stream, leader=True)
        self._leaving: set[asyncio.Task[None]] = set()

    async def subscribe(self, on_exhausted: OnExhausted) -> Unsubscribe:
        """Call ``on_exhausted`` for each advisory; the subscription survives reconnects."""

        async def on_advisory(message: Msg) -> None:
            advisory = msgspec.json.decode(message.data, type=_Advisory)
            on_exhausted(advisory.stream_seq, advisory.deliveries)

        advisories = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self._names.work_stream}.*"
        with translated():
            subscription = await self._connection.nc.subscribe(advisories, cb=on_advisory)

        async def leave() -> None:
            if not self._connection.is_closed:
                await subscription.unsubscribe()

        def unsubscribe() -> None:
            task = asyncio.get_running_loop().create_task(leave())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

        return unsubscribe

    async def get(self, number: int, times_delivered: int) -> ExhaustedJob | None:
        """Return the job of an advisory; None if it is no longer in the stream, or has no tag."""
        found = await self._reader.first(f"{self._names.work_prefix}.>", start=number)
        return self._job(found, times_delivered) if found is not None and found.sequence == number else None

    async def look(self, limit: int) -> Sequence[ExhaustedJob]:
        """Compare two counts of each tag, and read the jobs of those where they differ."""
        found: list[ExhaustedJob] = []
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
        """Delete the message; False if it does not exist any more."""
        request = msgspec.json.encode({"seq": number, "no_erase": True})
        try:
            await self._connection.request(f"STREAM.MSG.DELETE.{self._names.work_stream}", request)
        except RefusedError as error:
            if error.err_code not in _GONE:
                raise
            return False
        return True

    async def _stored(self) -> dict[str, int]:
        """Return the number of messages of each tag that has any."""
        everything = f"{self._names.work_prefix}.*"
        with translated():
            info = await self._connection.js.stream_info(self._names.work_stream, subjects_filter=everything)
        return info.state.subjects or {}

    async def _left_by(self, consumer: TagConsumer, limit: int) -> list[ExhaustedJob]:
        """Return the jobs that were delivered and are still there. Below the ack floor none is in flight."""
        last = consumer.delivered.stream_seq
        certain = last if consumer.num_ack_pending == 0 else consumer.ack_floor.stream_seq
        found: list[ExhaustedJob] = []
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

    def _job(self, message: StoredMessage, times_delivered: int) -> ExhaustedJob | None:
        tag = message.subject.removeprefix(f"{self._names.work_prefix}.")
        if not tag or "." in tag:
            return None  # no worker of ours pulls from such a subject
        return ExhaustedJob(message.sequence, tag, message.subject, message.data, times_delivered)

"""Jobs in flight, as the stream and its consumers know them, and how to return one in place of its worker.

A job that was delivered and is still in the stream is in flight, or its deliveries are exhausted. A worker returns a
job by a NAK on the reply subject of the delivery. Of that subject the server uses only the place in the stream; the
rest must be well-formed, so another process can send the NAK in place of a dead worker.
"""

from collections.abc import Collection, Sequence
from typing import Final

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.consumers import Consumers, TagConsumer
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.work_queue import InFlightJob

_MOST: Final = 2_000
"""How many jobs of a tag are read; the server delivers the others again after the ack wait."""


class JetStreamInFlightJobs:
    """The jobs in flight; a job's number is its sequence in the stream."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._consumers = Consumers(connection, names)
        self._reader = StreamReader(connection, names.work_stream, leader=True)

    async def look(self, tags: Collection[str]) -> Sequence[InFlightJob]:
        """Return the jobs between the ack floor of each tag's consumer and its last delivery."""
        subjects = {self._names.work_subject(tag): tag for tag in tags}
        try:
            consumers = await self._consumers.all()
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.work_stream}") from error
        found: list[InFlightJob] = []
        for consumer in consumers:
            tag = subjects.get(consumer.config.filter_subject)
            if tag is not None and consumer.num_ack_pending > 0:
                found += await self._in_flight_of(consumer, tag)
        return found

    async def give_back(self, job: InFlightJob) -> None:
        """Return a job to the queue in place of its worker."""
        await self._connection.confirmed(job.handle, b"-NAK")

    async def _in_flight_of(self, consumer: TagConsumer, tag: str) -> list[InFlightJob]:
        subject, last = consumer.config.filter_subject, consumer.delivered.stream_seq
        found: list[InFlightJob] = []
        start = consumer.ack_floor.stream_seq + 1
        while len(found) < _MOST and (messages := await self._from(subject, start)):
            found += (
                InFlightJob(message.sequence, tag, message.data, self._reply_to(consumer, message.sequence))
                for message in messages
                if message.sequence <= last
            )
            start = messages[-1].sequence + 1
            if start > last:
                break
        return found[:_MOST]

    async def _from(self, subject: str, start: int) -> list[StoredMessage]:
        """Return some of the messages from a sequence on, in order; only the leader knows that there are none.

        A replica may lag behind and still have jobs that are acknowledged; returning one of those has no effect.
        """
        page = await self._reader.page(subject, start=start)
        if page.messages:
            return page.messages
        first = await self._reader.first(subject, start=start)
        return [] if first is None else [first]

    def _reply_to(self, consumer: TagConsumer, sequence: int) -> str:
        """Return the reply subject of a job; the server ignores the count and the time of the delivery in it."""
        delivery = consumer.delivered.consumer_seq
        return f"$JS.ACK.{self._names.work_stream}.{consumer.name}.1.{sequence}.{delivery}.0.0"

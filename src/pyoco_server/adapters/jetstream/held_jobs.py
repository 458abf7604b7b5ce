"""Jobs in workers' hands, as the stream and its consumers know them, and how one is taken back.

What a consumer has delivered, and what is still in the stream, is in somebody's hands (or its deliveries are used up).
A worker asks for another delivery by a word on the subject it was sent with the job. All the server goes by is where
the job is in the stream; the rest of the subject need only be possible, so that word can be said in the worker's place.
"""

from collections.abc import Collection, Sequence
from typing import Final

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.consumers import Consumer, Consumers
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.translation import MissingError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.work_queue import HeldJob

_MOST: Final = 2_000
"""So many of a tag are looked at; the others come back by the ack wait."""


class JetStreamHeldJobs:
    """What is out; a job's number is its sequence in the stream."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._consumers = Consumers(connection, names)
        self._reader = StreamReader(connection, names.work_stream, leader=True)

    async def look(self, tags: Collection[str]) -> Sequence[HeldJob]:
        """Read what is between the ack floor of a tag's consumer and its last delivery."""
        subjects = {self._names.work_subject(tag): tag for tag in tags}
        try:
            consumers = await self._consumers.all()
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.work_stream}") from error
        found: list[HeldJob] = []
        for consumer in consumers:
            tag = subjects.get(consumer.config.filter_subject)
            if tag is not None and consumer.num_ack_pending > 0:
                found += await self._held_of(consumer, tag)
        return found

    async def give_back(self, job: HeldJob) -> None:
        """Say for the worker that it wants the job to be delivered again."""
        await self._connection.say(job.handle, b"-NAK")

    async def _held_of(self, consumer: Consumer, tag: str) -> list[HeldJob]:
        subject, last = consumer.config.filter_subject, consumer.delivered.stream_seq
        found: list[HeldJob] = []
        start = consumer.ack_floor.stream_seq + 1
        while len(found) < _MOST and (messages := await self._from(subject, start)):
            found += (
                HeldJob(message.sequence, tag, message.data, self._reply_to(consumer, message.sequence))
                for message in messages
                if message.sequence <= last
            )
            start = messages[-1].sequence + 1
            if start > last:
                break
        return found[:_MOST]

    async def _from(self, subject: str, start: int) -> list[StoredMessage]:
        """Some of what is there from a sequence on, in order; that there is nothing only the leader knows.

        A replica may lag behind. That it may still have what was settled does no harm: to give that back is nothing.
        """
        page = await self._reader.page(subject, start=start)
        if page.messages:
            return page.messages
        first = await self._reader.first(subject, start=start)
        return [] if first is None else [first]

    def _reply_to(self, consumer: Consumer, sequence: int) -> str:
        """Where a worker answers for a job: the count and the time of its delivery are of no consequence."""
        delivery = consumer.delivered.consumer_seq
        return f"$JS.ACK.{self._names.work_stream}.{consumer.name}.1.{sequence}.{delivery}.0.0"

"""The consumer behind a tag: found if it exists, created if it does not, never changed."""

from typing import Any, Final

import msgspec
from nats.js.api import AckPolicy, ConsumerConfig

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import ResourceMismatchError
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError, RejectedError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.identifiers import TOKEN

_ALREADY_EXISTS: Final = (10013, 10105, 10148)
_NOT_UNIQUE: Final = (10099, 10100)
_LIST_LIMIT: Final = 1_000


class LiveConsumer(msgspec.Struct, frozen=True):
    """The settings of a consumer that pulls depend on."""

    max_deliver: int = -1
    max_ack_pending: int = -1
    max_expires: int = 0
    ack_wait: int = 30_000_000_000
    filter_subject: str = ""
    deliver_subject: str = ""

    @property
    def ack_wait_sec(self) -> float:
        """How long a silent worker keeps a job."""
        return self.ack_wait / 1e9

    @property
    def max_expires_sec(self) -> float | None:
        """The longest time a pull request may wait; None if there is no limit."""
        return self.max_expires / 1e9 or None


class Reached(msgspec.Struct, frozen=True):
    """A consumer's place in the stream."""

    stream_seq: int = 0
    consumer_seq: int = 0
    """The number of deliveries up to there."""


class TagConsumer(msgspec.Struct, frozen=True):
    """A consumer and its state."""

    name: str
    config: LiveConsumer
    num_pending: int = 0
    num_ack_pending: int = 0
    paused: bool = False
    delivered: Reached = Reached()
    ack_floor: Reached = Reached()

    @property
    def holds_back(self) -> bool:
        """Whether its settings keep jobs from workers now: it is paused, or too many jobs are unacknowledged."""
        return self.paused or 0 < self.config.max_ack_pending <= self.num_ack_pending


class _ConsumerListing(msgspec.Struct):
    consumers: list[TagConsumer] | None = None
    total: int = 0


class Consumers:
    """One durable pull consumer a tag, on the stream of jobs."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    async def of_tag(self, tag: str) -> TagConsumer | None:
        """Return the consumer of the tag, whatever its name; None if there is none."""
        return await self.find(self.name(tag)) or await self._find_by_filter(self._names.work_subject(tag))

    def name(self, tag: str) -> str:
        """Return the name of a tag's consumer when we create it: that of the public releases, whose workers find it."""
        return f"pyoco_workers_{TOKEN.checked(tag, 'tag')}"

    async def find(self, name: str) -> TagConsumer | None:
        """Return the consumer of that name; None if there is none."""
        try:
            answer = await self._ask(f"CONSUMER.INFO.{self._names.work_stream}.{name}")
        except MissingError:
            return None
        return msgspec.json.decode(answer, type=TagConsumer)

    async def ensure(self, tag: str) -> TagConsumer:
        """Return the consumer of the tag; create it if there is none. Any number of processes may do so at once.

        ResourceMismatchError if the existing consumer cannot be used; UnavailableError if NATS did not answer, or there
        is no stream of jobs.
        """
        try:
            consumer = await self.find(self.name(tag)) or await self._create(tag)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.work_stream}") from error
        except RejectedError as error:
            raise ResourceMismatchError(self.name(tag), error.description or str(error)) from error
        if consumer.config.deliver_subject:
            raise ResourceMismatchError(
                consumer.name, "it is a push consumer; delete it, and it is created again as a pull consumer"
            )
        return consumer

    async def all(self) -> list[TagConsumer]:
        """Return all consumers, up to a generous limit; MissingError if there is no stream."""
        consumers: list[TagConsumer] = []
        while len(consumers) < _LIST_LIMIT:
            answer = await self._ask(f"CONSUMER.LIST.{self._names.work_stream}", {"offset": len(consumers)})
            listing = msgspec.json.decode(answer, type=_ConsumerListing)
            consumers += listing.consumers or []
            if not listing.consumers or len(consumers) >= listing.total:
                break
        return consumers

    async def _create(self, tag: str) -> TagConsumer:
        """Create it; unlike the library, this never changes one that another process created meanwhile."""
        name, subject = self.name(tag), self._names.work_subject(tag)
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            filter_subject=subject,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._names.ack_wait_sec,
            max_deliver=self._names.max_deliver,
            max_ack_pending=self._names.max_ack_pending,
        )
        request = {"stream_name": self._names.work_stream, "config": config.as_dict(), "action": "create"}
        try:
            answer = await self._ask(f"CONSUMER.CREATE.{self._names.work_stream}.{name}.{subject}", request)
        except RejectedError as error:
            existing = None
            if error.err_code in _ALREADY_EXISTS:
                existing = await self.find(name)
            elif error.err_code in _NOT_UNIQUE:
                existing = await self._find_by_filter(subject)
                if existing is None:
                    problem = f"another consumer takes {subject} together with other subjects"
                    raise ResourceMismatchError(self._names.work_stream, problem) from error
            if existing is None:
                raise
            return existing
        return msgspec.json.decode(answer, type=TagConsumer)

    async def _find_by_filter(self, subject: str) -> TagConsumer | None:
        """Return a consumer of the tag with another name; a work queue has at most one for each subject."""
        return next((found for found in await self.all() if found.config.filter_subject == subject), None)

    async def _ask(self, question: str, body: dict[str, Any] | None = None) -> bytes:
        """Send a request to the server; an error in the answer is raised, translated."""
        return await self._connection.request(question, b"" if body is None else msgspec.json.encode(body))

"""The consumer behind a tag: found if it exists, created if it does not, never changed."""

from typing import Any, Final

import msgspec
from nats.js.api import AckPolicy, ConsumerConfig

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names, subject_token
from pyoco_server.adapters.jetstream.resources import ResourceMismatchError
from pyoco_server.adapters.jetstream.translation import MissingError, RejectedError
from pyoco_server.app.ports import UnavailableError

_ALREADY_EXISTS: Final = (10013, 10105, 10148)
_NOT_UNIQUE: Final = (10099, 10100)
_LIST_LIMIT: Final = 1_000


class Settings(msgspec.Struct, frozen=True):
    """What the server says a consumer was created with, as far as it concerns those who pull."""

    max_deliver: int = -1
    max_ack_pending: int = -1
    max_expires: int = 0
    ack_wait: int = 30_000_000_000
    filter_subject: str = ""
    deliver_subject: str = ""

    @property
    def ack_wait_sec(self) -> float:
        """How long a job is left with whoever has it and says nothing."""
        return self.ack_wait / 1e9

    @property
    def max_expires_sec(self) -> float | None:
        """How long a request may wait; None if there is no limit."""
        return self.max_expires / 1e9 or None


class Reached(msgspec.Struct, frozen=True):
    """How far a consumer has come in the stream."""

    stream_seq: int = 0
    consumer_seq: int = 0
    """How many deliveries that were."""


class Consumer(msgspec.Struct, frozen=True):
    """A consumer as it stands."""

    name: str
    config: Settings
    num_pending: int = 0
    num_ack_pending: int = 0
    paused: bool = False
    delivered: Reached = Reached()
    ack_floor: Reached = Reached()

    @property
    def holds_back(self) -> bool:
        """Does it keep jobs from those who pull, as it was told to?"""
        return self.paused or 0 < self.config.max_ack_pending <= self.num_ack_pending


class _Listing(msgspec.Struct):
    consumers: list[Consumer] | None = None
    total: int = 0


class Consumers:
    """One durable pull consumer a tag, on the stream of jobs."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    async def of_tag(self, tag: str) -> Consumer | None:
        """The consumer of the tag under whichever name it was created; None if there is none."""
        return await self.find(self.name(tag)) or await self._find_by_filter(self._names.work_subject(tag))

    def name(self, tag: str) -> str:
        """What the consumer of a tag is called when we create it: as in the public releases, whose workers find it."""
        return f"pyoco_workers_{subject_token(tag, field='tag')}"

    async def find(self, name: str) -> Consumer | None:
        """The consumer of that name; None if there is none."""
        try:
            answer = await self._ask(f"CONSUMER.INFO.{self._names.work_stream}.{name}")
        except MissingError:
            return None
        return msgspec.json.decode(answer, type=Consumer)

    async def ensure(self, tag: str) -> Consumer:
        """The consumer of the tag, created if there is none; whoever else does this at the same time finds it.

        ResourceMismatchError if what exists cannot serve; UnavailableError if it could not be found out, or there is
        no stream to consume from.
        """
        try:
            consumer = await self.find(self.name(tag)) or await self._create(tag)
        except MissingError as error:
            raise UnavailableError(f"there is no stream {self._names.work_stream}") from error
        except RejectedError as error:
            raise ResourceMismatchError(self.name(tag), error.description or str(error)) from error
        if consumer.config.deliver_subject:
            raise ResourceMismatchError(consumer.name, "it is a push consumer; delete it and let it be created anew")
        return consumer

    async def all(self) -> list[Consumer]:
        """All there are, up to a limit nobody should come near; MissingError if there is no stream."""
        consumers: list[Consumer] = []
        while len(consumers) < _LIST_LIMIT:
            answer = await self._ask(f"CONSUMER.LIST.{self._names.work_stream}", {"offset": len(consumers)})
            listing = msgspec.json.decode(answer, type=_Listing)
            consumers += listing.consumers or []
            if not listing.consumers or len(consumers) >= listing.total:
                break
        return consumers

    async def _create(self, tag: str) -> Consumer:
        """Create it; unlike the library's own way, this never changes one that came to exist meanwhile."""
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
        return msgspec.json.decode(answer, type=Consumer)

    async def _find_by_filter(self, subject: str) -> Consumer | None:
        """A consumer somebody created for the tag under a name of their own; a queue has only one a subject."""
        return next((found for found in await self.all() if found.config.filter_subject == subject), None)

    async def _ask(self, question: str, body: dict[str, Any] | None = None) -> bytes:
        """Ask the server; an answer that is an error is raised, translated."""
        return await self._connection.request(question, b"" if body is None else msgspec.json.encode(body))

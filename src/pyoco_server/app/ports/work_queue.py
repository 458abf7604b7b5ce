"""The queue: which runs want a worker now. Derived from the log, so losing a message loses no run."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from pyoco_server.app.ports.event_log import Unsubscribe

OnSpent = Callable[[int, int], None]
"""Told the number of a job, and how often it was delivered. Called on the event loop; must be quick and must not raise.
"""


class Delivery(Protocol):
    """A job in a worker's hands. Until it is settled, it comes back when the ack wait is over.

    Settling proves nothing about exclusivity: two workers can hold one job after a pause. The log decides who wins.
    """

    @property
    def tag(self) -> str:
        """The tag it was queued under."""
        ...

    @property
    def subject(self) -> str:
        """Where it was published."""
        ...

    @property
    def body(self) -> bytes:
        """The job as it was published."""
        ...

    @property
    def times_delivered(self) -> int:
        """1 the first time."""
        ...

    @property
    def is_last(self) -> bool:
        """Will it never be delivered again, whatever becomes of this delivery?"""
        ...

    async def ack(self) -> None:
        """Done: take it out of the queue. Returns when the queue has confirmed; UnavailableError if it did not."""
        ...

    async def nak(self, delay_sec: float) -> None:
        """Not done: deliver it again after so long. Whoever has it by now, since the ack wait was over, keeps it."""
        ...

    async def term(self) -> None:
        """Never deliver it again."""
        ...

    async def in_progress(self) -> None:
        """Still at it: begin the ack wait anew. UnavailableError if that could not be said."""
        ...


class WorkQueue(Protocol):
    """Jobs by tag; each goes to one of the workers that pull for the tag."""

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        """Queue a job; one with the same ``dedup_id`` shortly before is the same job. UnavailableError: unknown."""
        ...

    async def prepare(self, tag: str) -> None:
        """Make sure that jobs of the tag can be pulled; existing settings are respected."""
        ...

    async def pull(self, tag: str, *, timeout_sec: float) -> Delivery | None:
        """Wait for the next job of the tag; None if there was none in time.

        UnavailableError if the queue cannot be reached. Never silent for much longer than ``timeout_sec``, whatever
        happens to the server meanwhile. Cancelling a pull loses no job for longer than the ack wait.
        """
        ...

    async def backlog(self, tag: str) -> int:
        """How many jobs of the tag nobody has pulled yet."""
        ...

    async def stalled(self, tag: str) -> bool:
        """Has a pull been silent although jobs of the tag wait and nothing holds them back?"""
        ...

    async def rebind(self, tag: str) -> None:
        """Let the pulls of the tag begin anew."""
        ...


class HeldJob(NamedTuple):
    """A job that was delivered and is not settled: somebody has it in hand, or had until they died."""

    number: int
    """Where it is in the queue."""
    tag: str
    body: bytes
    handle: str = ""
    """What the queue needs to know to take it back."""


class HeldJobs(Protocol):
    """What a queue knows of the jobs in workers' hands; not in whose."""

    async def look(self, tags: Collection[str]) -> Sequence[HeldJob]:
        """Those of these tags, but not all if there are very many; UnavailableError if nobody knows."""
        ...

    async def give_back(self, job: HeldJob) -> None:
        """Let a job be delivered again at once, as if whoever has it had asked for that. UnavailableError: unknown.

        Nothing happens to one that was settled or taken back meanwhile. One that was delivered to somebody else
        meanwhile is delivered once more: the queue does not tell one delivery from another.
        """
        ...


class SpentJob(NamedTuple):
    """A job nobody settled and nobody will be given again: its deliveries are used up."""

    number: int
    """Where it is in the queue."""
    tag: str
    subject: str
    body: bytes
    times_delivered: int
    is_certain: bool = True
    """False: it may be in a worker's hands just as well."""


class SpentJobs(Protocol):
    """What a queue keeps of jobs whose deliveries are used up; nobody but whoever looks for them takes them out."""

    async def subscribe(self, on_spent: OnSpent) -> Unsubscribe:
        """Be told when a job's last delivery has come to nothing.

        A hint: it comes when somebody pulls for the tag after that, and nobody is told later who did not listen then.
        """
        ...

    async def get(self, number: int, times_delivered: int) -> SpentJob | None:
        """The job of which was told; None if somebody took it out."""
        ...

    async def look(self, limit: int) -> Sequence[SpentJob]:
        """At most so many of a tag that are there, whether anybody was told or not; UnavailableError if nobody knows.

        Cheap while there are none. While workers hold jobs of the same tag it cannot always be told which is which;
        what is not certain is marked.
        """
        ...

    async def remove(self, number: int) -> bool:
        """Take a job out of the queue; False if somebody did already. UnavailableError: unknown."""
        ...

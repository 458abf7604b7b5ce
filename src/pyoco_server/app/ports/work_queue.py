"""The queue: which runs want a worker now. It is derived from the log, so a lost message loses no run."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from pyoco_server.app.ports.event_log import Unsubscribe

OnExhausted = Callable[[int, int], None]
"""Called on the event loop with a job's number and how often it was delivered; must be quick and must not raise."""


class Delivery(Protocol):
    """A job that a worker was given. Unless it is settled, it is delivered again when the ack wait is over.

    Settling it does not prove that no other worker has it: after a pause, two workers can have one job. The log decides
    which of them wins.
    """

    @property
    def tag(self) -> str:
        """The tag under which the job was queued."""
        ...

    @property
    def subject(self) -> str:
        """The subject to which the job was published."""
        ...

    @property
    def body(self) -> bytes:
        """The job as it was published."""
        ...

    @property
    def times_delivered(self) -> int:
        """How many times the job was delivered, with this delivery."""
        ...

    @property
    def is_last(self) -> bool:
        """Whether the job is never delivered again, even if this delivery is not settled."""
        ...

    async def ack(self) -> None:
        """Remove the job from the queue. Returns when the queue has confirmed; UnavailableError if it did not."""
        ...

    async def nak(self, delay_sec: float) -> None:
        """Have the job delivered again after so long, unless another worker was given it since the ack wait ended."""
        ...

    async def term(self) -> None:
        """Remove the job from the queue although it was not done."""
        ...

    async def in_progress(self) -> None:
        """Restart the ack wait; UnavailableError if the queue could not be reached."""
        ...


class WorkQueue(Protocol):
    """Jobs by tag; each is delivered to one of the workers that pull for its tag."""

    async def publish(self, tag: str, body: bytes, *, dedup_id: str) -> None:
        """Queue a job unless one with the same ``dedup_id`` was queued shortly before. UnavailableError: unknown."""
        ...

    async def prepare(self, tag: str) -> None:
        """Make sure that jobs of the tag can be pulled; existing settings are kept."""
        ...

    async def pull(self, tag: str, *, timeout_sec: float) -> Delivery | None:
        """Return the next job of the tag; None if there was none in time.

        UnavailableError if the queue cannot be reached. It returns or raises soon after ``timeout_sec`` at the latest,
        whatever happens to the server. A job that arrives for a cancelled pull is delivered again after the ack wait.
        """
        ...

    async def backlog(self, tag: str) -> int:
        """Return how many jobs of the tag no worker has pulled yet."""
        ...

    async def stalled(self, tag: str) -> bool:
        """Return whether a pull got nothing although jobs of the tag wait and nothing holds them back."""
        ...

    async def rebind(self, tag: str) -> None:
        """Start the pulls of the tag again, on a new subscription."""
        ...


class InFlightJob(NamedTuple):
    """A job that was delivered and is not settled: a worker has it, or had it when it died."""

    number: int
    """The job's number in the queue."""
    tag: str
    body: bytes
    handle: str = ""
    """What the queue needs to deliver it again."""


class InFlightJobs(Protocol):
    """Lists jobs that are in flight. The queue does not know which worker has which."""

    async def look(self, tags: Collection[str]) -> Sequence[InFlightJob]:
        """Return the jobs of these tags in flight, not all if there are very many; UnavailableError: unknown."""
        ...

    async def give_back(self, job: InFlightJob) -> None:
        """Have a job delivered again at once, as if its worker had asked for that. UnavailableError: unknown.

        A job that was settled or given back meanwhile is left alone. One that was delivered to another worker meanwhile
        is delivered once more: the queue cannot distinguish the two deliveries.
        """
        ...


class ExhaustedJob(NamedTuple):
    """A job whose deliveries are exhausted: no worker settled it, and it is never delivered again."""

    number: int
    """The job's number in the queue."""
    tag: str
    subject: str
    body: bytes
    times_delivered: int
    is_certain: bool = True
    """False: a worker may still have it."""


class ExhaustedJobs(Protocol):
    """Lists exhausted jobs; they stay in the queue until :meth:`remove`."""

    async def subscribe(self, on_exhausted: OnExhausted) -> Unsubscribe:
        """Call ``on_exhausted`` when a job's last delivery was not settled in time.

        A hint: the call comes when a worker pulls for the tag after that, and only to those who are subscribed then.
        """
        ...

    async def get(self, number: int, times_delivered: int) -> ExhaustedJob | None:
        """Return the job that ``on_exhausted`` was called with; None if it was removed."""
        ...

    async def look(self, limit: int) -> Sequence[ExhaustedJob]:
        """Return at most ``limit`` exhausted jobs of each tag; UnavailableError if they cannot be listed.

        Cheap while there are none. While jobs of the same tag are in flight, an exhausted job cannot always be
        distinguished from them; then it is not :attr:`ExhaustedJob.is_certain`.
        """
        ...

    async def remove(self, number: int) -> bool:
        """Remove a job from the queue; False if it was removed already. UnavailableError: unknown."""
        ...

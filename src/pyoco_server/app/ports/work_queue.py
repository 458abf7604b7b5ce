"""The queue: which runs want a worker now. Derived from the log, so losing a message loses no run."""

from typing import Protocol


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
        """Not done: deliver it again after so long."""
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

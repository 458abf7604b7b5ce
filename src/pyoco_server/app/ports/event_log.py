"""The log: the truth about every execution."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pyoco_server.core import Event

OnAppend = Callable[[int], None]
"""Told where the log ends now. Called on the event loop; must be quick and must not raise."""

Unsubscribe = Callable[[], None]


class EventLog(Protocol):
    """One log an execution; the order of appends decides every race.

    Positions are opaque but ordered: 0 is the beginning, and a later commit has a higher one.
    """

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Add a commit if the log still ends at ``after``, and return where it ends now; else LogConflictError.

        All of the commit is there or nothing of it. UnavailableError means that nobody knows: read before deciding.
        ``quiet`` if nobody but the caller can have the execution in hand: then subscribers to it are not told.
        """
        ...

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events behind ``after``, and where the log ends; never older than what ``append`` returned."""
        ...

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Be told of commits that were not quiet, as soon as they are there.

        A hint: some may be missed, so whoever must not miss one also reads the log now and then.
        """
        ...

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        """The same for all executions; the id comes first."""
        ...

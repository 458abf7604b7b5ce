"""The event log: the truth about every execution. Everything else that is stored is derived from it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pyoco_server.core import Event

OnAppend = Callable[[int], None]
"""Called with the position where the log ends now, on the event loop; must be quick and must not raise."""

Unsubscribe = Callable[[], None]


class EventLog(Protocol):
    """One log for each execution; the order of appends decides every race.

    Positions are opaque but ordered: 0 is the beginning, and a later commit has a higher one.
    """

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Add a commit if the log still ends at ``after``, and return where it ends now; else LogConflictError.

        The commit is stored as a whole or not at all. UnavailableError: the outcome is unknown, read before deciding.
        ``quiet`` if no other process can own the execution: then its subscribers are not notified.
        """
        ...

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events after ``after``, and where the log ends; never older than what ``append`` returned."""
        ...

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Call ``on_append`` for commits that were not quiet, as soon as they are stored.

        A hint: calls may be missing, so a subscriber that must not miss a commit also reads the log now and then.
        """
        ...

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        """Call ``on_append`` with the id and the position for commits to any log; a hint, too."""
        ...

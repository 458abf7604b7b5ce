"""The log: the truth about every execution."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pyoco_server.core import Event, EventType
from pyoco_server.core.payloads import NodeSucceeded

OnAppend = Callable[[int], None]
"""Told where the log ends now. Called on the event loop; must be quick and must not raise."""

Unsubscribe = Callable[[], None]

_BEGINNINGS: Final = frozenset(
    {EventType.EXECUTION_STARTED, EventType.NODE_CREATED, EventType.NODE_READY, EventType.NODE_STARTED}
)


def only_begins(commit: Sequence[Event]) -> bool:
    """Does a commit set an execution going, and no more? Nothing rests on it but work that would be begun again."""
    return commit[0].type is EventType.EXECUTION_STARTED and all(
        event.type in _BEGINNINGS or (isinstance(event.payload, NodeSucceeded) and event.payload.output is None)
        for event in commit
    )


class EventLog(Protocol):
    """One log an execution; the order of appends decides every race.

    Positions are opaque but ordered: 0 is the beginning, and a later commit has a higher one.
    """

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Add a commit if the log still ends at ``after``, and return where it ends now; else LogConflictError.

        All of the commit is there or nothing of it. UnavailableError means that nobody knows: read before deciding.
        ``quiet`` if nobody but the caller can have the execution in hand: then subscribers to it are not told, and a
        commit that :func:`only_begins` may be durable only with the next one.
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

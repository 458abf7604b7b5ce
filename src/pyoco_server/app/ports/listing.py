"""What the stores contain, without reading any log: for the comparison of the log with what is derived from it."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class ListedLog(NamedTuple):
    """A log, as its store counts it."""

    run_id: str
    commits: int
    """The number of commits."""
    has_snapshot: bool
    """Whether there is a snapshot, or a marker that one was removed."""


class StoreListing(Protocol):
    """Lists logs and jobs. The cost grows with their number: never call it at intervals. UnavailableError: no list."""

    def logs(self) -> AsyncIterator[Sequence[ListedLog]]:
        """Yield all logs in pages; those that begin meanwhile may be missing."""
        ...

    def jobs(self) -> AsyncIterator[Sequence[bytes]]:
        """Yield the bodies of all jobs in pages: queued, in flight or exhausted."""
        ...

    async def state(self) -> str:
        """Return a text that changes when log, snapshots or queue get, lose or remove anything; cheap."""
        ...

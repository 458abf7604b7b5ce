"""Reading many runs: an index beside the snapshots, and the feed that keeps it up to date."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

FEED_BYTES: Final = 4 * 1024 * 1024
"""When so much of snapshots was read, no more is read in the same go: they may be large, and must be held at once."""


class SnapshotChange(NamedTuple):
    """A snapshot was written or removed."""

    run_id: str
    body: bytes | None
    """The snapshot; None if it was removed."""
    sequence: int
    """Grows with every change of any run."""


Announced = Callable[[str, "SnapshotChange | None"], None]
"""Told which run changed, and how if that came along; else one has to look."""


class FeedState(NamedTuple):
    """What a feed has to offer."""

    origin: str
    """Which snapshots these are. Another one than before: they were begun anew, and what was known of them is void."""
    first: int
    """What is older is gone. A run whose newest change is older has no snapshot any more, though nothing told of it."""
    last: int
    """The newest change there has been."""


def size_of(changes: Iterable[SnapshotChange]) -> int:
    """How many bytes of snapshots there are in these."""
    return sum(len(change.body or b"") for change in changes)


def has_enough(changes: Sequence[SnapshotChange], limit: int) -> bool:
    """May there be more to read than these? Else they are all there was."""
    return len(changes) >= limit or size_of(changes) >= FEED_BYTES


class SnapshotFeed(Protocol):
    """All changes of snapshots, in order; of several changes of one run, the older may be missing."""

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        """Changes behind ``after``, oldest first, and up to where they have been read; UnavailableError if they cannot.

        Never more than ``limit``. Fewer only if there was nothing more, but for what is written in this very moment, or
        if they have FEED_BYTES or more: see ``has_enough``. A position the feed has never reached means that the
        snapshots were begun anew: then the changes are those from the beginning, and the position returned is lower
        than asked.
        """
        ...

    async def state(self) -> FeedState:
        """What there is to read; UnavailableError if nobody can say."""
        ...

    async def wait(self, timeout_sec: float) -> None:
        """Return when there may be something new, or when the time is up."""
        ...

    def listen(self, told: Announced) -> None:
        """Be told of a run as soon as its snapshot was written or removed, once reading has begun.

        Sooner than who reads in order, but a hint only: some are never told of.
        """
        ...


class Cursor(NamedTuple):
    """Where a walk through the runs stands: behind the run submitted then, with this id."""

    submitted_at: float
    run_id: str


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, and in which order."""

    tenant_id: str | None = None
    """Only this tenant's; None: everybody's."""
    status: str | None = None
    flow: str | None = None
    tag: str | None = None
    """The one its jobs are queued by, not those it is merely labelled with."""
    updated_after: float | None = None
    """Later than this, not at this moment."""
    submitted_after: float | None = None
    """Likewise."""
    workflow_yaml_sha256: str | None = None
    held: bool = False
    """Only runs that are held because no worker has the code they need next."""
    run_id_prefix: str | None = None
    before: Cursor | None = None
    """Only what is listed behind this."""
    oldest_first: bool = False
    limit: int = 50


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, by what never changes of them: a run that fits fits for ever."""

    tenant_id: str | None = None
    """Only this tenant's; None: everybody's."""
    flow: str | None = None
    tag: str | None = None
    run_id_prefix: str | None = None


class Tally(NamedTuple):
    """How many runs have which status; statuses no run has are left out."""

    counts: Mapping[str, int]
    is_complete: bool
    """False: there are at least so many. Not all were looked at, because there are too many."""


LATENCY_BOUNDS_SEC: Final = tuple(
    round(factor * 10.0**power, 3) for power in range(-2, 6) for factor in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
)
"""Where the classes of latencies end, from a hundredth of a second to a week; the last class has no end."""


class Histogram(NamedTuple):
    """How long something took, of how many runs."""

    runs: Sequence[int]
    """By class: up to each of the bounds, and longer than the last."""
    seconds: float
    """All together."""


class Latencies(NamedTuple):
    """Of the runs that were seen to end; runs that are gone since are still counted."""

    queued: Histogram
    """From submission to the start, of those that were started."""
    whole: Histogram
    """From submission to the end, however they ended."""


class IndexedRun(NamedTuple):
    """What the index knows of a run."""

    cursor: Cursor
    summary: dict[str, Any]
    """The snapshot without what is long: params and task records.

    Of a run with very many tasks or very long texts, more is left out; ``summary_truncated`` is true then.
    """


class DueWait(NamedTuple):
    """A wait that is past its deadline."""

    run_id: str
    node_id: str


class SilentRun(NamedTuple):
    """A run of which nothing was heard for a while."""

    summary: dict[str, Any]
    place: tuple[float, int]
    """Among those that are silent; for whoever wants to look at the next."""


class RunIndex(Protocol):
    """Answers questions about many runs without looking at all of them. UnavailableError if it cannot answer.

    What is no snapshot (no JSON object with a status) is to it as if it were not there. A run that does not say when it
    was submitted is placed where it was first seen.
    """

    async def position(self) -> int:
        """Up to where in the feed it is up to date."""
        ...

    async def origin(self) -> str:
        """Which snapshots it was made from; empty if it has not been told."""
        ...

    async def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        """Take changes, and remember that it is up to date up to ``position``; all of it or nothing.

        What is older than what it knows changes nothing: of a run, or below the position it has already reached, which
        never becomes lower.
        """
        ...

    async def forget(self, before: int) -> None:
        """Remove the runs whose newest change is older than this sequence."""
        ...

    async def clear(self, origin: str = "") -> None:
        """Forget everything; from now on it is made from the snapshots of this origin."""
        ...

    async def page(self, query: RunQuery) -> Sequence[IndexedRun]:
        """The newest runs that fit, at most ``query.limit``; by time of submission, then by id, both descending.

        Or the oldest, both ascending.
        """
        ...

    async def counts(self, tenant_id: str | None = None) -> Mapping[str, int]:
        """How many runs have which status; statuses no run has are left out."""
        ...

    async def held_count(self, tenant_id: str | None = None) -> int:
        """Return how many runs are held because no worker has the code they need next."""
        ...

    async def tally(self, wanted: RunFilter) -> Tally:
        """How many of the runs that fit have which status."""
        ...

    async def tags(self, status: str, tenant_id: str | None = None, limit: int = 50) -> Mapping[str, int]:
        """The tags of the runs that have this status, and how many runs each has; those of most runs first."""
        ...

    async def among(self, run_ids: Sequence[str], wanted: RunFilter) -> Sequence[IndexedRun]:
        """Those of these runs that fit, in no particular order."""
        ...

    async def latencies(self, tenant_id: str | None = None) -> Latencies:
        """How long runs took, counted as they end."""
        ...

    async def submitted_on_day_of(self, moment: float, tenant_id: str | None = None) -> int:
        """How many of the runs there are were submitted on the day (UTC) of this moment, in Unix seconds."""
        ...

    async def due(self, now: float, limit: int = 100) -> Sequence[DueWait]:
        """Waits past their deadline, of runs that have not ended; those that are due longest come first."""
        ...

    async def silent(
        self, since: float, limit: int = 100, *, after: tuple[float, int] | None = None
    ) -> Sequence[SilentRun]:
        """Runs that have not ended, do not merely wait, are not held, and showed no sign of life since then.

        Executions that are driven from outside are none of them: nobody here would do anything about it.
        A sign of life is a heartbeat or an event. A run merely waits if some of its nodes wait, no other node is
        running, nobody drives it, and it is not to be cancelled. Those that are silent longest come first;
        with ``after``, only those behind that place.
        """
        ...

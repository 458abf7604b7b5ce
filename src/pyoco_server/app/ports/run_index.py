"""Ports for many runs: an index beside the snapshots, and the feed of changes that keeps it up to date."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from typing_extensions import override

FEED_BYTES: Final = 4 * 1024 * 1024
"""A batch of changes ends when its snapshots have so many bytes: all of a batch is in memory at once."""


class SnapshotChange(NamedTuple):
    """A snapshot was written or removed."""

    run_id: str
    body: bytes | None
    """The snapshot; None if it was removed."""
    sequence: int
    """Grows with every change of any run."""


Announced = Callable[[str, "SnapshotChange | None"], None]
"""Called with the run that changed, and with the change if the announcement contains it."""


class FeedState(NamedTuple):
    """Which changes a feed has."""

    origin: str
    """The name of the snapshots. If it changes, they were recreated, and an index of the old ones is void."""
    first: int
    """Older changes are gone. A run whose newest change is older has no snapshot any more, and no change says so."""
    last: int
    """The newest change."""


def size_of(changes: Iterable[SnapshotChange]) -> int:
    """Return how many bytes the snapshots of these changes have."""
    return sum(len(change.body or b"") for change in changes)


def has_enough(changes: Sequence[SnapshotChange], limit: int) -> bool:
    """Return whether there may be more to read than these changes."""
    return len(changes) >= limit or size_of(changes) >= FEED_BYTES


class SnapshotFeed(Protocol):
    """All changes of snapshots, in order. Of several changes of one run, the older may be missing."""

    async def read(self, *, after: int, limit: int = 500) -> tuple[Sequence[SnapshotChange], int]:
        """Return changes after ``after``, oldest first, and the position they were read up to.

        At most ``limit``. Fewer only if there were no more when reading began, or if they have FEED_BYTES or more: see
        ``has_enough``. If the feed has never reached ``after``, the snapshots were recreated: then the changes are
        those from the beginning, and the returned position is lower than ``after``. UnavailableError if nothing can be
        read.
        """
        ...

    async def state(self) -> FeedState:
        """Return which changes there are; UnavailableError if the feed cannot be reached."""
        ...

    async def wait(self, timeout_sec: float) -> None:
        """Return when there may be a new change, or after ``timeout_sec``."""
        ...

    def listen(self, on_change: Announced) -> None:
        """Call a function as soon as a snapshot was written or removed, once reading has begun.

        The call comes before the change can be read in order. It is a hint: some changes are never announced.
        """
        ...


class Cursor(NamedTuple):
    """A place in the list of runs: behind the run that was submitted then, with this id."""

    submitted_at: float
    run_id: str


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, and in which order."""

    tenant_id: str | None = None
    """Only runs of this tenant; None: of all."""
    status: str | None = None
    flow: str | None = None
    tag: str | None = None
    """The tag under which the run's jobs are queued, not the tags it is only labelled with."""
    updated_after: float | None = None
    """Later than this moment, not at it."""
    submitted_after: float | None = None
    """Later than this moment, not at it."""
    workflow_yaml_sha256: str | None = None
    held: bool = False
    """Only runs that are held because no worker has the code they need next."""
    run_id_prefix: str | None = None
    before: Cursor | None = None
    """Only runs that are listed behind this place."""
    oldest_first: bool = False
    limit: int = 50


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, by fields that never change: a run that fits once fits for ever."""

    tenant_id: str | None = None
    """Only runs of this tenant; None: of all."""
    flow: str | None = None
    tag: str | None = None
    run_id_prefix: str | None = None


class RunTally(NamedTuple):
    """The number of runs by status; statuses that no run has are left out."""

    counts: Mapping[str, int]
    is_complete: bool
    """False: there are at least so many. There are too many runs to count them all."""


LATENCY_BOUNDS_SEC: Final = tuple(
    round(factor * 10.0**power, 3) for power in range(-2, 6) for factor in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
)
"""The upper bounds of the classes of latencies, from a hundredth of a second to a week; the last class has none."""


class Histogram(NamedTuple):
    """The durations of runs, as a histogram."""

    runs: Sequence[int]
    """The number of runs by class: up to each of the bounds, and longer than the last."""
    seconds: float
    """The sum of all durations."""


class Latencies(NamedTuple):
    """The durations of the runs that ended; runs that were removed since are still counted."""

    queued: Histogram
    """From submission to the start, of runs that started."""
    whole: Histogram
    """From submission to the end, whatever the status."""


class TenantUsage(NamedTuple):
    """What the runs of one tenant use."""

    live: int
    """Runs that have not ended."""
    submitted: int
    """Runs that were submitted later than a moment."""
    stored_bytes: int
    """The bytes of snapshots, flow.yaml files and results; logs have little more than these."""


class IndexedRun(NamedTuple):
    """A run as the index has it."""

    cursor: Cursor
    summary: dict[str, Any]
    """The snapshot without its long parts: params and task records.

    Of a run with very many tasks or very long texts, more is left out; then ``summary_truncated`` is true.
    """


class DueWait(NamedTuple):
    """A wait that is past its deadline."""

    run_id: str
    node_id: str


class SilentRun(NamedTuple):
    """A run without a recent sign of life."""

    summary: dict[str, Any]
    place: tuple[float, int]
    """The run's place among the silent ones, to ask for the next."""


class RunIndexReader(Protocol):
    """Answers questions about many runs without reading all of them. UnavailableError if it cannot answer.

    A tenant has a reader of its own, for which other tenants' runs do not exist. What is no snapshot (no JSON object
    with a status) does not exist for a reader, either. A run without a time of submission is placed where it was first
    seen.
    """

    async def page(self, query: RunQuery) -> Sequence[IndexedRun]:
        """Return the newest runs that fit, at most ``query.limit``, by time of submission, then by id, both descending.

        With ``query.oldest_first`` the oldest, both ascending.
        """
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return the number of runs by status; statuses that no run has are left out."""
        ...

    async def held_count(self) -> int:
        """Return how many runs are held because no worker has the code they need next."""
        ...

    async def tally(self, wanted: RunFilter) -> RunTally:
        """Return the number of runs that fit, by status."""
        ...

    async def tags(self, status: str, *, limit: int = 50) -> Mapping[str, int]:
        """Return the tags of the runs with this status and how many runs each has, the most frequent tags first."""
        ...

    async def among(self, run_ids: Sequence[str], wanted: RunFilter) -> Sequence[IndexedRun]:
        """Return those of these runs that fit, in no particular order."""
        ...

    async def redriven(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the runs that repeat these, in the order of their submission; runs without any are left out."""
        ...

    async def latencies(self) -> Latencies:
        """Return how long runs took, counted as they end."""
        ...

    async def submitted_on_day_of(self, moment: float) -> int:
        """Return how many runs were submitted on the day (UTC) of this moment, in Unix seconds."""
        ...


class RunIndex(RunIndexReader, Protocol):
    """The index itself: it counts runs of one tenant or of all, and takes the changes of the feed."""

    @override
    async def counts(self, tenant_id: str | None = None) -> Mapping[str, int]:
        """Return the number of runs by status, of a tenant or of all."""
        ...

    @override
    async def held_count(self, tenant_id: str | None = None) -> int:
        """Return how many runs are held, of a tenant or of all."""
        ...

    @override
    async def tags(self, status: str, tenant_id: str | None = None, *, limit: int = 50) -> Mapping[str, int]:
        """Return the tags of the runs with this status, of a tenant or of all."""
        ...

    @override
    async def redriven(self, run_ids: Sequence[str], tenant_id: str | None = None) -> Mapping[str, Sequence[str]]:
        """Return the runs of a tenant, or of all, that repeat these."""
        ...

    @override
    async def latencies(self, tenant_id: str | None = None) -> Latencies:
        """Return how long the runs of a tenant, or all, took."""
        ...

    @override
    async def submitted_on_day_of(self, moment: float, tenant_id: str | None = None) -> int:
        """Return how many runs of a tenant, or of all, were submitted on this day (UTC)."""
        ...

    async def usage(self, tenant_id: str, since: float) -> TenantUsage:
        """Return what the runs of a tenant use; ``submitted`` counts those submitted later than ``since``."""
        ...

    async def position(self) -> int:
        """Return the position of the feed up to which the index is up to date."""
        ...

    async def origin(self) -> str:
        """Return the name of the snapshots that the index was made from; empty if it was never set."""
        ...

    async def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        """Store changes together with ``position``, up to which the index is now up to date; all or nothing.

        A change that is older than what the index has of the run, or below its position, has no effect. The position
        never becomes lower.
        """
        ...

    async def compared(self) -> str:
        """Return the state of the stores that was stored last; empty if none was, or the index was cleared since."""
        ...

    async def note_compared(self, state: str) -> None:
        """Store the state (:meth:`.listing.StoreListing.state`) in which the log and what is derived from it agree."""
        ...

    async def unknown(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Return those of these runs that the index does not have."""
        ...

    async def forget(self, before: int) -> None:
        """Remove the runs whose newest change is older than this sequence."""
        ...

    async def clear(self, origin: str = "") -> None:
        """Remove everything; from now on the index is made from the snapshots of this origin."""
        ...

    async def due(self, now: float, limit: int = 100) -> Sequence[DueWait]:
        """Return waits past their deadline, of runs that have not ended; the longest overdue first."""
        ...

    async def silent(
        self, since: float, limit: int = 100, *, after: tuple[float, int] | None = None
    ) -> Sequence[SilentRun]:
        """Return runs that have not ended, are neither parked nor held, and showed no sign of life since then.

        A sign of life is a heartbeat or an event. A run is parked if some of its nodes wait, no other node is running,
        no process owns it, and no cancel was requested. Executions that clients drive are left out. The longest silent
        come first; with ``after``, only those behind that place.
        """
        ...

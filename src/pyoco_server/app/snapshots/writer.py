"""Writes snapshots: the one place that stores, replaces and removes them.

A snapshot is derived from the log of its run, so any process may write it, at any time. Four rules make that safe:

- A snapshot that carries an older log position never replaces a newer one. The store compares the positions
  (``Snapshots.write``); a write that it refuses is complete, because what is stored shows more.
- What another program wrote is appended to the log before it is replaced, and stays where its writer executes the run
  (:mod:`.foreign`). The store refuses to replace what the writer has not read.
- A run that was retracted has no snapshot: instead of being written, it is removed.
- A first snapshot never replaces anything, not even the mark of a submitter that retracts the run.

When to write is the caller's decision: at once, or, for a worker, a moment after a change (``worker/active_run``).
"""

from typing import Final, NamedTuple, Protocol

from pyoco_server.app.ports import ForeignSnapshotError, Snapshots, StoredSnapshot, UnavailableError
from pyoco_server.app.snapshots.codec import fitted, json_object, number
from pyoco_server.app.snapshots.projection import RELEASED_AT, RunProjection, read_hold
from pyoco_server.app.snapshots.status import was_retracted
from pyoco_server.core.json_codec import JsonObject

_MOST_TRIES: Final = 20


class Ownership(NamedTuple):
    """The fields of a snapshot that do not come from the log: which process owns the run."""

    heartbeat_at: float | None = None
    driven_by: str | None = None
    is_released: bool = False
    """Whether a worker released the run where its log ends now."""
    held: JsonObject | None = None
    """The missing code that the run is held for."""

    @classmethod
    def of(cls, stored: StoredSnapshot | None, position: int) -> "Ownership":
        """Return what the stored snapshot says, for a run whose log ends at ``position``."""
        said = (json_object(stored.body) if stored is not None else None) or {}
        return cls(
            heartbeat_at=number(said.get("heartbeat_at")),
            driven_by=said.get("driven_by"),
            is_released=said.get(RELEASED_AT) == position,
            held=read_hold(said),
        )


class SnapshotSource(Protocol):
    """A run as the process knows it that writes its snapshot."""

    @property
    def projection(self) -> RunProjection:
        """The projection of the log."""
        ...

    @property
    def position(self) -> int:
        """Where the log ends that was projected."""
        ...

    def ownership(self, stored: StoredSnapshot | None) -> Ownership:
        """Return who owns the run now; ``stored`` is what is replaced, if it was read."""
        ...

    async def make_replaceable(self, stored: StoredSnapshot) -> bool:
        """Append to the log what another program claims in ``stored``; return False if ``stored`` has to stay."""
        ...


class SnapshotWriter:
    """Writes the snapshots of runs; it has no state, so any number of them may write the same one."""

    def __init__(self, snapshots: Snapshots, *, max_bytes: int) -> None:
        self._snapshots = snapshots
        self._max_bytes = max_bytes

    async def write_first(self, snapshot: JsonObject, *, is_urgent: bool = True) -> int | None:
        """Store the first snapshot of a run, and return its revision; None if there is one, or must not be one.

        One that is not urgent is durable when :meth:`Snapshots.sync` has returned. UnavailableError: unknown.
        """
        body, position = fitted(snapshot, self._max_bytes), snapshot["log_position"]
        try:
            return await self._snapshots.write(
                snapshot["run_id"], body, position=position, revision=0, is_urgent=is_urgent
            )
        except ForeignSnapshotError:  # another program may have taken the job already
            return None

    async def refresh(self, source: SnapshotSource) -> None:
        """Read what is stored, and bring it up to date: for processes that do not own the run."""
        stored = await self._snapshots.read(source.projection.state.execution_id)
        await self._write(source, stored, None)

    async def write(self, source: SnapshotSource, *, revision: int | None) -> int | None:
        """Store the snapshot and return its revision; None if a newer one is stored, or one that has to stay.

        ``revision``: what the caller knows to be stored, no newer than its log; None if it does not know.
        UnavailableError: unknown. TooLargeError: the store refused it.
        """
        return await self._write(source, None, revision)

    async def _write(self, source: SnapshotSource, stored: StoredSnapshot | None, revision: int | None) -> int | None:
        projection = source.projection
        run_id = projection.state.execution_id
        for _ in range(_MOST_TRIES):
            if was_retracted(projection.state):
                await self.remove(run_id)
                return None
            if stored is not None:
                if stored.position > source.position or not await source.make_replaceable(stored):
                    return None
                revision = stored.revision
            body = fitted(_snapshot(source, stored), self._max_bytes)
            try:
                return await self._snapshots.write(run_id, body, position=source.position, revision=revision)
            except ForeignSnapshotError as error:
                stored = error.stored
        raise UnavailableError(f"other programs changed the snapshot of '{run_id}' {_MOST_TRIES} times")

    async def prevent(self, run_id: str) -> None:
        """Make sure that a run that is retracted has no snapshot and gets no first one; UnavailableError: unknown."""
        for _ in range(_MOST_TRIES):
            if await self.prevent_first(run_id):
                return
            await self.remove(run_id)
        raise UnavailableError(f"the snapshot of '{run_id}' was written again {_MOST_TRIES} times")

    async def prevent_first(self, run_id: str) -> bool:
        """Refuse first writes from now on; return False, and change nothing, if there is a snapshot."""
        return await self._snapshots.forbid(run_id)

    async def remove(self, run_id: str) -> None:
        """Remove the snapshot of a run that was retracted."""
        await self._snapshots.delete(run_id)

    async def sync(self) -> None:
        """Return when all stored snapshots are durable; UnavailableError: unknown."""
        await self._snapshots.sync()


def _snapshot(source: SnapshotSource, stored: StoredSnapshot | None) -> JsonObject:
    position, owned = source.position, source.ownership(stored)
    return source.projection.snapshot(
        position=position,
        heartbeat_at=owned.heartbeat_at,
        driven_by=owned.driven_by,
        released_at=position if owned.is_released else None,
        held=owned.held,
    )

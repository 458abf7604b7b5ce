"""A run that this worker drives: the run, its job, and its snapshot, which is written when the run changes."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pyoco_server.app.ports import (
    Clock,
    Delivery,
    SnapshotReader,
    StoredSnapshot,
    TooLargeError,
    UnavailableError,
)
from pyoco_server.app.runtime.driver import DriveOutcome
from pyoco_server.app.runtime.run import Run
from pyoco_server.app.snapshots.foreign import foreign_snapshot
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.app.snapshots.writer import Ownership, SnapshotWriter
from pyoco_server.core import Event, ExecutionState
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import ExecutionCancelRequested
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

SETTLE_SEC: Final = 0.1
"""The delay of a write after a change: a run that ends meanwhile has one snapshot less to write."""

PACE_SEC: Final = 0.1
"""The least time between two writes of one run."""

LOOK_SEC: Final = 0.25
"""When a task ends, the snapshot is read unless it was read, or written over a known revision, this recently."""

OnForeign = Callable[[StoredSnapshot], Awaitable[None]]
"""Commits what a foreign snapshot claims."""


class PacedSnapshot:
    """The snapshot of a run that this worker drives, written when the run changes; of quick changes, the last."""

    def __init__(
        self,
        projection: RunProjection,
        snapshots: SnapshotReader,
        writer: SnapshotWriter,
        clock: Clock,
        *,
        revision: int | None = None,
    ) -> None:
        """``revision``: that of the stored snapshot, if it is known to be no newer than the log that we have read."""
        self.driven_by: str | None = None
        self.held: JsonObject | None = None
        """What the snapshot says of the missing code that the run is held for."""
        self.on_foreign: OnForeign | None = None
        """Without it, a foreign snapshot is replaced: for a run whose end is in the log."""
        self.known_at = -math.inf
        """When the stored snapshot was last known to be ours, on the loop's clock."""
        self.position = 0
        self.projection = projection
        self._snapshots = snapshots
        self._writer = writer
        self._clock = clock
        self._revision = revision
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._dirty = False

    def others_write(self) -> None:
        """Another process writes the snapshot, too: read its revision before the next write."""
        self._revision = None

    def changed(self) -> None:
        """Write the snapshot soon."""
        self._dirty = True
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_SEC, self._begin)

    async def write(self) -> None:
        """Write the run's current snapshot; UnavailableError if the outcome is unknown.

        A snapshot that the store refuses is logged and left out: the run does not fail because it cannot be shown.
        """
        self._stop_timer()
        async with self._lock:
            self._dirty = False
            try:
                self._revision = await self._writer.write(self, revision=self._revision)
            except TooLargeError as error:
                run_id = self.projection.state.execution_id
                log_error(_log, "ERR-PYOCO-0010", action="snapshot_refused", exc=error, run_id=run_id)
            else:
                self.known_at = asyncio.get_running_loop().time()

    def ownership(self, stored: StoredSnapshot | None) -> Ownership:  # noqa: ARG002 the owner knows without reading
        """Return what this worker says of itself."""
        return Ownership(self._clock.now().timestamp(), self.driven_by, self.driven_by is None, self.held)

    async def make_replaceable(self, stored: StoredSnapshot) -> bool:
        """Commit what a foreign snapshot claims; then it is replaced."""
        if self.on_foreign is not None:
            await self.on_foreign(stored)
        return True

    async def look(self) -> None:
        """Read the stored snapshot, and commit what a foreign program wrote there."""
        self.known_at = asyncio.get_running_loop().time()
        stored = await self._snapshots.read(self.projection.state.execution_id)
        if foreign_snapshot(stored) is None or stored is None:
            return
        async with self._lock:
            await self.make_replaceable(stored)
            self._revision = stored.revision if stored.position <= self.position else None
        self.changed()

    def close(self) -> None:
        """Cancel the write that is due."""
        self._stop_timer()
        self._dirty = False

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write_paced(), name="snapshot")

    async def _write_paced(self) -> None:
        try:
            while self._dirty:
                await self.write()
                await asyncio.sleep(PACE_SEC)
        except UnavailableError:  # the heartbeat tries again, and the end of the run must be written
            _log.debug("a snapshot was not written", extra={"action": "snapshot_postponed"})
        finally:
            self._writing = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ActiveRun:
    """One run this worker drives."""

    def __init__(
        self,
        run: Run,
        projection: RunProjection,
        snapshot: PacedSnapshot,
        delivery: Delivery,
        *,
        look_sec: float = LOOK_SEC,
    ) -> None:
        """``look_sec``: how long ago the snapshot may have been read when a task ends."""
        self.run = run
        self.projection = projection
        self.delivery = delivery
        self._snapshot = snapshot
        self._look_sec = look_sec
        snapshot.on_foreign = self._on_foreign
        snapshot.known_at = asyncio.get_running_loop().time()
        run.at_boundary = self._at_boundary
        run.subscribe(self._on_commit)

    async def drive(self, driven_by: str) -> DriveOutcome:
        """Drive the run until it ends or nothing can run here, and write its snapshot before the job is settled."""
        self._snapshot.driven_by = driven_by
        try:
            rest = await self.run.drive_until_rest()
            self._snapshot.driven_by = None
            if rest is not DriveOutcome.TAKEN_OVER:
                await self._snapshot.write()
                if self.run.state.is_terminal:  # a cancel may have come with the snapshot
                    rest = DriveOutcome.ENDED
        finally:
            self._snapshot.close()
        # Break reference cycles, so that nothing is left for the garbage collector.
        self._snapshot.on_foreign = self.run.at_boundary = None
        return rest

    async def hold(self, held: JsonObject) -> None:
        """Write that the run is held, and for which code; UnavailableError if the outcome is unknown."""
        self._snapshot.held = held
        await self._snapshot.write()

    async def hand_back(self) -> None:
        """Record in the log and in the snapshot that this worker releases the run; best effort.

        If the log cannot be written, the tasks at work are counted as crashed once.
        """
        self._snapshot.driven_by = None
        try:
            await self.run.hand_back()
            await self._snapshot.write()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="hand_back_untold", exc=error, level=logging.WARNING)

    async def beat(self) -> None:
        """Write a heartbeat, and read what other processes wrote to the log unnoticed."""
        try:
            await self.run.catch_up()
            if not self.run.state.is_terminal:
                await self._snapshot.write()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="heartbeat_failed", exc=error, level=logging.WARNING)

    async def report_progress(self) -> None:
        """Report to the queue that the job is in progress, so that it is not delivered to another worker."""
        try:
            await self.delivery.in_progress()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0009", action="in_progress_failed", exc=error, level=logging.WARNING)

    async def _at_boundary(self) -> None:
        """When a task has ended, see whether a foreign gateway accepted a cancel, before the outcome is committed.

        Best effort: the task's result is not lost because the snapshot cannot be read.
        """
        if asyncio.get_running_loop().time() - self._snapshot.known_at < self._look_sec:
            return
        try:
            await self._snapshot.look()
        except UnavailableError:
            _log.debug("the snapshot was not read", extra={"action": "snapshot_not_read"})

    async def _on_foreign(self, stored: StoredSnapshot) -> None:
        foreign = foreign_snapshot(stored)
        execution = self.run.execution
        decision = foreign.decision_of_worker(execution) if foreign is not None else None
        events = await execution.decide(decision) if decision is not None else []
        if events and self.projection.state is not execution.state:  # the run has ended, and its listeners are gone
            self.projection.listen(events, execution.state)
            self._snapshot.position = self.run.position

    def _on_commit(self, events: Sequence[Event], state: ExecutionState) -> None:
        self.projection.listen(events, state)
        self._snapshot.position = self.run.position
        if state.is_cancel_requested and any(type(event.payload) is ExecutionCancelRequested for event in events):
            self._snapshot.others_write()  # the process that requests a cancel writes it; ours would delay the end
        else:
            self._snapshot.changed()

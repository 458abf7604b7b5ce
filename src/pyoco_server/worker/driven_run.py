"""A run in a worker's hands: the run itself, its job, and its snapshot as it changes."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pyoco_server.app.driver import Rest
from pyoco_server.app.foreign_snapshots import foreign_snapshot
from pyoco_server.app.ports import (
    Clock,
    Delivery,
    ForeignSnapshotError,
    Snapshots,
    StoredSnapshot,
    TooLargeError,
    UnavailableError,
)
from pyoco_server.app.projection import RunProjection
from pyoco_server.app.retracting import was_taken_back
from pyoco_server.app.run import Run
from pyoco_server.app.snapshot_size import fitted
from pyoco_server.core import Event, ExecutionState
from pyoco_server.core.payloads import ExecutionCancelRequested
from pyoco_server.core.wire import JsonObject
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

SETTLE_SEC: Final = 0.1
"""A change is written this much later: a run that is over by then has one snapshot less to write."""

PACE_SEC: Final = 0.1
"""Between two writes of one run at least."""

LOOK_SEC: Final = 0.25
"""At a task boundary the snapshot is read unless it was read, or written over a known revision, this recently."""

_MOST_TRIES: Final = 20

OnForeign = Callable[[StoredSnapshot], Awaitable[None]]
"""Puts into the log what a snapshot of another program claims."""


class SnapshotWriter:
    """Writes a run's snapshot when it changes; of changes in quick succession, the last."""

    def __init__(
        self,
        projection: RunProjection,
        snapshots: Snapshots,
        clock: Clock,
        *,
        max_bytes: int,
        revision: int | None = None,
    ) -> None:
        """``revision``: of the newest snapshot, if it is known to be no newer than the log we have read."""
        self.driven_by: str | None = None
        self.held: JsonObject | None = None
        """What the snapshot is to say of the code that the run is held for."""
        self.on_foreign: OnForeign | None = None
        """Without it, what another program wrote is replaced: for a run whose end is in the log."""
        self.known_at = -math.inf
        """When the stored snapshot was last known to be ours, on the loop's clock."""
        self.position = 0
        self._projection = projection
        self._snapshots = snapshots
        self._clock = clock
        self._max_bytes = max_bytes
        self._revision = revision
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._dirty = False

    def others_write(self) -> None:
        """Somebody else does, too: what we believe is stored will not be, and is looked for rather than tried."""
        self._revision = None

    def changed(self) -> None:
        """Write soon."""
        self._dirty = True
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_SEC, self._begin)

    async def write(self) -> None:
        """Write how the run stands now; UnavailableError if it could not be made sure.

        A snapshot the store will not have is told of and left out: the run does not fail because nobody can look at it.
        """
        self._stop_timer()
        async with self._lock:
            self._dirty = False
            if was_taken_back(self._projection.state):
                await self._snapshots.delete(self._projection.state.execution_id)
                return
            for _ in range(_MOST_TRIES):
                try:
                    await self._write()
                except ForeignSnapshotError as error:
                    await self._heed(error.stored)
                else:
                    return
            run_id = self._projection.state.execution_id
            raise UnavailableError(f"other programs changed the snapshot of '{run_id}' {_MOST_TRIES} times")

    async def _write(self) -> None:
        """Write once; ForeignSnapshotError if another program wrote what is stored since we last read it."""
        position, run_id = self.position, self._projection.state.execution_id
        snapshot = self._projection.snapshot(
            position=position,
            heartbeat_at=self._clock.now().timestamp(),
            driven_by=self.driven_by,
            let_go_at=position if self.driven_by is None else None,
            held=self.held,
        )
        body = fitted(snapshot, self._max_bytes)
        try:
            written = await self._snapshots.write(run_id, body, position=position, revision=self._revision)
        except TooLargeError as error:
            log_error(_log, "ERR-PYOCO-0010", action="snapshot_refused", exc=error, run_id=run_id)
            return
        self._revision = written  # None: somebody knows more, and we shall learn of it by the log
        self.known_at = asyncio.get_running_loop().time()

    async def look(self) -> None:
        """Read the stored snapshot, and put into the log what another program wrote there."""
        self.known_at = asyncio.get_running_loop().time()
        stored = await self._snapshots.read(self._projection.state.execution_id)
        if foreign_snapshot(stored) is None or stored is None:
            return
        async with self._lock:
            await self._heed(stored)
        self.changed()

    async def _heed(self, stored: StoredSnapshot) -> None:
        if self.on_foreign is not None:
            await self.on_foreign(stored)
        self._revision = stored.revision if stored.position <= self.position else None

    def close(self) -> None:
        """Write no more by itself."""
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
        except UnavailableError:  # the heartbeat tries again, and the end of the run insists
            _log.debug("a snapshot was not written", extra={"action": "snapshot_postponed"})
        finally:
            self._writing = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class DrivenRun:
    """One run this worker drives."""

    def __init__(
        self,
        run: Run,
        projection: RunProjection,
        writer: SnapshotWriter,
        delivery: Delivery,
        *,
        look_sec: float = LOOK_SEC,
    ) -> None:
        """``look_sec``: how old the last look at the snapshot may be when a task ends."""
        self.run = run
        self.projection = projection
        self.delivery = delivery
        self._writer = writer
        self._look_sec = look_sec
        writer.on_foreign = self._on_foreign
        writer.known_at = asyncio.get_running_loop().time()
        run.at_boundary = self._at_boundary
        run.subscribe(self._on_commit)

    async def drive(self, driven_by: str) -> Rest:
        """Take the run as far as it goes, and write how it stands then, before anybody hears of it."""
        self._writer.driven_by = driven_by
        try:
            rest = await self.run.until_rest()
            self._writer.driven_by = None
            if rest is not Rest.TAKEN_OVER:
                await self._writer.write()
                rest = Rest.ENDED if self.run.state.is_terminal else rest  # a cancel may have come with the snapshot
        finally:
            self._writer.close()
        self._writer.on_foreign = self.run.at_boundary = None  # they hold us: leave nothing to the garbage collector
        return rest

    async def hold(self, held: JsonObject) -> None:
        """Write that the run is held, and for what; UnavailableError if it could not be made sure."""
        self._writer.held = held
        await self._writer.write()

    async def hand_back(self) -> None:
        """Say that this worker has let go of the run, in the log and in the snapshot; best effort.

        If the log cannot be written, the tasks at work are counted as crashed once.
        """
        self._writer.driven_by = None
        try:
            await self.run.hand_back()
            await self._writer.write()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="hand_back_untold", exc=error, level=logging.WARNING)

    async def beat(self) -> None:
        """A sign of life, and a look whether anybody wrote to the log unnoticed."""
        try:
            await self.run.look()
            if not self.run.state.is_terminal:
                await self._writer.write()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="heartbeat_failed", exc=error, level=logging.WARNING)

    async def still_at_it(self) -> None:
        """Keep the job from being given to somebody else."""
        try:
            await self.delivery.in_progress()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0009", action="in_progress_failed", exc=error, level=logging.WARNING)

    async def _at_boundary(self) -> None:
        """A task has ended: see whether another gateway accepted a cancel, before the log says what follows.

        Best effort: what the task did is not thrown away because the snapshots cannot be read.
        """
        if asyncio.get_running_loop().time() - self._writer.known_at < self._look_sec:
            return
        try:
            await self._writer.look()
        except UnavailableError:
            _log.debug("the snapshot was not read", extra={"action": "snapshot_not_read"})

    async def _on_foreign(self, stored: StoredSnapshot) -> None:
        foreign = foreign_snapshot(stored)
        decision = foreign.decision(self.run.execution, is_alive=False) if foreign is not None else None
        if decision is None:
            return
        if self.run.state.is_terminal:
            if foreign is not None and foreign.asks_for_cancel and not foreign.is_terminal:
                _log.warning(
                    "another gateway accepted a cancel after the run had ended",
                    extra={"action": "cancel_too_late", "run_id": stored.run_id},
                )
            return
        await self.run.execution.decide(decision)

    def _on_commit(self, events: Sequence[Event], state: ExecutionState) -> None:
        self.projection.listen(events, state)
        self._writer.position = self.run.position
        if state.is_cancel_requested and any(type(event.payload) is ExecutionCancelRequested for event in events):
            self._writer.others_write()  # whoever asks for a cancel shows it; ours would be in the way of the end
        else:
            self._writer.changed()

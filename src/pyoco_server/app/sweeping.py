"""Sweeps: what must happen although whoever should have done it is gone.

Everything here can be derived from the log, and is written by compare-and-set or can be done twice without harm; so any
number of gateways may sweep at the same time.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from pyoco_server.app.auditing import SnapshotAudit
from pyoco_server.app.foreign_writes import ForeignWrites
from pyoco_server.app.held_runs import HeldRuns
from pyoco_server.app.lagging import Lagging
from pyoco_server.app.ports import (
    Clock,
    DueWait,
    RunFilter,
    RunIndex,
    RunQuery,
    Snapshots,
    UnavailableError,
    WorkerRegistry,
    WorkQueue,
)
from pyoco_server.app.ports.beginnings import Beginnings
from pyoco_server.app.retracting import was_taken_back
from pyoco_server.app.run_desk import OpenRun, RunDesk, RunNotFoundError
from pyoco_server.app.spent_jobs import SpentJobSweep
from pyoco_server.app.statuses import RunStatus
from pyoco_server.core import Actor, ActorKind, CommandRejected
from pyoco_server.errors import InvalidInputError
from pyoco_server.logs import log_error

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SWEEPER: Final = Actor(ActorKind.SCHEDULER, "sweep")
_QUEUE: Final = Actor(ActorKind.EXTERNAL, "queue")
"""Created by a worker, for a job of somebody else: the job is still there, and comes back."""
AT_ONCE: Final = 16
_CHUNK: Final = 200
_MOST_SILENT: Final = 100
_MOST_DUE: Final = 100_000
_GROUP: Final = 512
_WAITS_AT_ONCE: Final = 64
PUT_OFF_SEC: Final = 30.0
"""How long a wait that could not be woken is left alone; it is not due any more once the index hears of its end."""


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When something is overdue."""

    interval_sec: float = 1.0
    cancel_grace_sec: float = 30.0
    cancel_margin_sec: float = 2.0
    """Beyond the grace: the worker ends a cancel itself, if it can."""
    snapshot_sec: float = 3.0
    audit_sec: float = 30.0
    """Between two looks whether the snapshot of a run that has not ended is behind its log."""
    orphan_sec: float = 30.0
    survey_sec: float = 600.0
    """All logs are looked over no more often than this, and only at the start and after an outage."""
    worker_silent_sec: float = 20.0
    """A worker that has not reported for so long cannot be expected to take a held run."""
    silent_sec: float = 90.0
    """How long a run may be without a sign of life; beyond the ack wait, since its job comes back by itself."""


class Sweeper:
    """Sweeps now and then."""

    def __init__(  # noqa: PLR0913 one parameter a port
        self,
        *,
        desk: RunDesk,
        index: RunIndex,
        snapshots: Snapshots,
        queue: WorkQueue,
        lagging: Lagging,
        beginnings: Beginnings,
        spent: SpentJobSweep,
        workers: WorkerRegistry,
        foreign: ForeignWrites,
        clock: Clock,
        options: SweepOptions,
        chance: random.Random | None = None,
    ) -> None:
        """``chance`` is to differ between gateways, so that they do not wake the same waits at the same time."""
        self._desk = desk
        self._index = index
        self._snapshots = snapshots
        self._queue = queue
        self._lagging = lagging
        self._beginnings = beginnings
        self._spent = spent
        self._foreign = foreign
        self._clock = clock
        self._options = options
        self._audit = SnapshotAudit(
            desk=desk, index=index, snapshots=snapshots, clock=clock, interval_sec=options.audit_sec
        )
        self._held = HeldRuns(
            desk=desk, index=index, workers=workers, clock=clock, silent_sec=options.worker_silent_sec
        )
        self._chance = chance or random.Random(0)  # noqa: S311 an order, not a secret
        self._put_off: dict[DueWait, float] = {}
        self._orphans: dict[str, float] = {}
        self._surveyed_at = -math.inf
        self._may_have_missed = True
        self._looked_behind: tuple[float, int] | None = None
        """Among those that are silent: the place of the one looked at last."""

    @property
    def sweeps(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """All there is to do, in the order in which it is done."""
        return (
            self.expire_waits,
            self.end_cancels,
            self._held.wake,
            self.mend_snapshots,
            self._audit.audit,
            self._spent.end_spent,
            self.find_orphans,
            self.close_orphans,
            self.rescue,
        )

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(self._options.interval_sec)
            for sweep in self.sweeps:
                try:
                    await sweep()
                except UnavailableError:
                    self._may_have_missed = True
                    break  # those who serve requests say so; there is nothing to sweep without a store
                except Exception as error:  # noqa: BLE001 told; the other sweeps, and the next round, must go on
                    log_error(_log, "ERR-PYOCO-0106", action="sweep_crashed", exc=error, sweep=sweep.__name__)

    async def expire_waits(self) -> None:
        """Wake every wait past its deadline: it takes its default, or fails.

        The index is asked again for every group, so that gateways that sweep at the same time share the waits: each
        picks its group by chance, and waits that another gateway has woken are no longer due.
        """
        now, seen = self._now(), set[DueWait]()
        self._put_off = {wait: until for wait, until in self._put_off.items() if until > now}
        while True:
            found = await self._index.due(now, _MOST_DUE)
            due = [wait for wait in found if wait not in seen and wait not in self._put_off]
            if not due:
                return
            group = due if len(due) <= _GROUP else self._chance.sample(due[: 8 * _GROUP], _GROUP)
            seen.update(group)
            await self._each(group, self._expire, at_once=_WAITS_AT_ONCE)

    async def _expire(self, wait: DueWait) -> None:
        try:
            await self._desk.expire(wait.run_id, wait.node_id, _SWEEPER)
        except (CommandRejected, RunNotFoundError, InvalidInputError):
            # Another gateway was quicker and the index does not know it yet, or the snapshot is not one of ours.
            self._put_off[wait] = self._now() + PUT_OFF_SEC

    async def end_cancels(self) -> None:
        """A cancel nobody brought to its end within its grace ends here."""
        overdue = self._now() - self._options.cancel_grace_sec - self._options.cancel_margin_sec
        query = RunQuery(status=RunStatus.CANCELLING.value, limit=200)
        while found := await self._index.page(query):
            asked = [run.summary for run in found if (run.summary.get("cancel_requested_at") or 0.0) < overdue]
            await self._each(asked, lambda summary: self._end_cancel(summary["run_id"]))
            query = msgspec.structs.replace(query, before=found[-1].cursor)

    async def _end_cancel(self, run_id: str) -> None:
        if await self._desk.end_cancel(run_id):
            log_error(_log, "ERR-PYOCO-0021", action="cancel_ended_by_sweep", run_id=run_id)

    async def mend_snapshots(self) -> None:
        """Snapshots that are behind their log are written anew."""
        overdue = self._lagging.overdue(self._now() - self._options.snapshot_sec)
        await self._each(overdue, lambda lag: self._mend(lag.run_id, lag.position))

    async def _mend(self, run_id: str, position: int) -> None:
        stored = await self._snapshots.read(run_id)
        if stored is not None and stored.position >= position:
            return
        run = await self._desk.open(run_id)
        if was_taken_back(run.execution.state):
            await self._hide(run_id)
        elif stored is not None or _was_accepted(run):
            await self._desk.write(run)
        else:
            self._orphans.setdefault(run_id, self._now())  # its submitter may still be about to write it

    async def _hide(self, run_id: str) -> None:
        """What was never accepted is not to be seen; whoever took it back may have died before they had removed it."""
        await self._snapshots.delete(run_id)

    async def find_orphans(self) -> None:
        """Runs that were begun while nobody was there to hear of it, and have no snapshot.

        Whoever is there hears of every append. So the logs are looked over when this begins, and after an outage.
        """
        if not self._may_have_missed or self._now() < self._surveyed_at + self._options.survey_sec:
            return
        self._may_have_missed = False
        try:
            async for run_ids in self._beginnings.pages():
                for start in range(0, len(run_ids), _CHUNK):
                    await self._note_unknown(run_ids[start : start + _CHUNK])
        except UnavailableError:
            self._may_have_missed = True
            raise
        self._surveyed_at = self._now()

    async def _note_unknown(self, run_ids: Sequence[str]) -> None:
        """Runs whose log has only begun and that the index does not know, or knows to be further than that."""
        known = {found.cursor.run_id: found.summary for found in await self._index.among(run_ids, RunFilter())}
        for run_id in run_ids:
            if run_id not in known:
                self._orphans.setdefault(run_id, self._now())
            elif known[run_id].get("status") != RunStatus.PENDING:
                self._foreign.note(run_id)

    async def close_orphans(self) -> None:
        """Runs that were begun and never accepted: whoever submitted them was told that it failed, or is gone."""
        before = self._now() - self._options.orphan_sec
        due = [run_id for run_id, since in self._orphans.items() if since <= before]
        await self._each(due, self._close_orphan)

    async def _close_orphan(self, run_id: str) -> None:
        since = self._orphans.pop(run_id)
        try:
            if await self._snapshots.read(run_id) is None:
                await self._settle_orphan(run_id)
        except UnavailableError:
            self._orphans[run_id] = since
            raise

    async def _settle_orphan(self, run_id: str) -> None:
        run = await self._desk.open(run_id)
        if _was_accepted(run):
            await self._desk.write(run)
        elif not was_taken_back(run.execution.state) and run.events[0].actor != _QUEUE:
            log_error(_log, "ERR-PYOCO-0004", action="orphan_closed", level=logging.WARNING, run_id=run_id)
            await self._desk.take_back(run_id, _SWEEPER)

    async def rescue(self) -> None:
        """Runs without a sign of life get another job, if theirs is not in the queue."""
        since, after = self._now() - self._options.silent_sec, self._looked_behind
        silent = await self._index.silent(since, _MOST_SILENT, after=after)
        # Some stay silent, as those of a tag no worker takes: whatever becomes of these, the next are looked at next.
        self._looked_behind = silent[-1].place if len(silent) == _MOST_SILENT else None
        tagged = [(str(run.summary["run_id"]), tag) for run in silent if isinstance(tag := run.summary.get("tag"), str)]
        idle = {tag for tag in {tag for _, tag in tagged} if await self._is_idle(tag)}
        lost = [run_id for run_id, tag in tagged if tag in idle]
        for run_id in lost:
            _log.warning("no sign of life", extra={"action": "run_rescued", "run_id": run_id})
        await self._each(lost, self._rescue)

    async def _is_idle(self, tag: str) -> bool:
        """Are there no jobs of the tag that nobody has pulled yet?"""
        try:
            return await self._queue.backlog(tag) == 0
        except InvalidInputError:  # there can be none: somebody else wrote that snapshot
            return False

    async def _rescue(self, run_id: str) -> None:
        if was_taken_back((await self._desk.open(run_id)).execution.state):
            await self._hide(run_id)
        else:
            await self._desk.rescue(run_id)

    async def _each(self, found: Sequence[T], do: Callable[[T], Awaitable[object]], *, at_once: int = AT_ONCE) -> None:
        gate = asyncio.Semaphore(at_once)

        async def one(item: T) -> None:
            async with gate:
                try:
                    await do(item)
                except (CommandRejected, RunNotFoundError, InvalidInputError):
                    return  # somebody was quicker, it is gone, or never was a run: just as well

        await asyncio.gather(*(one(item) for item in found))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _was_accepted(run: OpenRun) -> bool:
    """Is the run somebody's, although it has no snapshot?

    Whoever submits a run has not answered before there is one. Not so where somebody has gone on with it; nor of an
    execution driven from outside, which is answered for as soon as it is in the log.
    """
    return not was_taken_back(run.execution.state) and (len(run.events) > 1 or run.projection.is_driven_outside)

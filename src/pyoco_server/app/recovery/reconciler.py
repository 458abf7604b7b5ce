"""The periodic sweeps of a gateway: each finds work that a process left undone, and does it.

Everything here follows from the log, and is written by compare-and-set or does no harm if done twice; so any number of
gateways may sweep at the same time.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from pyoco_server.app.ports import (
    Clock,
    DueWait,
    RunIndex,
    RunQuery,
    SnapshotReader,
    UnavailableError,
    WorkerRegistry,
    WorkQueue,
)
from pyoco_server.app.recovery.exhausted_jobs import ExhaustedJobSweep
from pyoco_server.app.recovery.held_runs import HeldRuns
from pyoco_server.app.recovery.rebuild import Rebuild
from pyoco_server.app.recovery.snapshot_audit import SnapshotAudit
from pyoco_server.app.runs.run_log import RunLog, RunNotFoundError
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.core import Actor, ActorKind, CommandRejected
from pyoco_server.errors import InvalidInputError
from pyoco_server.logs import log_error

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SWEEPER: Final = Actor(ActorKind.SCHEDULER, "sweep")
AT_ONCE: Final = 16
_MOST_SILENT: Final = 100
_DUE_WINDOW: Final = 4_096
_DUE_GROUP: Final = 512
_WAITS_AT_ONCE: Final = 128
"""Each ended wait takes five round trips to NATS, one after the other. On a busy machine they take most of the time."""
PUT_OFF_SEC: Final = 30.0
"""The pause before a wait that could not be ended is tried again; once it has ended, the index drops it."""


class ReconcilerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of the sweeps, and when something is overdue."""

    interval_sec: float = 1.0
    cancel_grace_sec: float = 30.0
    cancel_margin_sec: float = 2.0
    """Beyond the grace: the worker ends a cancel itself, if it can."""
    snapshot_sec: float = 3.0
    audit_sec: float = 30.0
    """Between two audits of the snapshots of all open runs."""
    worker_silent_sec: float = 20.0
    """A worker that has not reported for so long cannot be expected to take a held run."""
    silent_sec: float = 90.0
    """How long a run may be without a heartbeat; more than the ack wait, after which its job comes back by itself."""


class Reconciler:
    """Runs all sweeps, one after the other, at each interval."""

    def __init__(  # noqa: PLR0913 one parameter a port
        self,
        *,
        run_log: RunLog,
        index: RunIndex,
        snapshots: SnapshotReader,
        queue: WorkQueue,
        lagging: SnapshotLag,
        rebuild: Rebuild,
        exhausted: ExhaustedJobSweep,
        workers: WorkerRegistry,
        clock: Clock,
        options: ReconcilerOptions,
        chance: random.Random | None = None,
    ) -> None:
        """``chance`` must differ between gateways, so that they do not end the same waits at the same time."""
        self._run_log = run_log
        self._index = index
        self._snapshots = snapshots
        self._queue = queue
        self._lagging = lagging
        self._rebuild = rebuild
        self._exhausted = exhausted
        self._clock = clock
        self._options = options
        self._audit = SnapshotAudit(
            run_log=run_log, index=index, snapshots=snapshots, clock=clock, interval_sec=options.audit_sec
        )
        self._held = HeldRuns(
            run_log=run_log, index=index, workers=workers, clock=clock, silent_sec=options.worker_silent_sec
        )
        self._chance = chance or random.Random(0)  # noqa: S311 an order, not a secret
        self._put_off: dict[DueWait, float] = {}
        self._rescued_up_to: tuple[float, int] | None = None
        """The place, among silent runs, of the last one that :meth:`rescue` has seen."""

    @property
    def sweeps(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """All sweeps, in their order."""
        return (
            self.expire_waits,
            self.end_cancels,
            self._held.wake,
            self.repair_snapshots,
            self._audit.audit,
            self._exhausted.end_exhausted,
            self.rescue,
        )

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(self._options.interval_sec)
            self._rebuild.notice_reconnects()
            for sweep in self.sweeps:
                try:
                    await sweep()
                except UnavailableError:
                    self._rebuild.request()
                    break  # requests report the outage; nothing can be swept without a store
                except Exception as error:  # noqa: BLE001 logged; the other sweeps must run
                    log_error(_log, "ERR-PYOCO-0106", action="sweep_crashed", exc=error, sweep=sweep.__name__)

    async def expire_waits(self) -> None:
        """End every wait past its deadline: it takes its default, or fails.

        Gateways that sweep at the same time share the waits: each takes a random group of the oldest, and asks the
        index again after every group, since waits that another gateway has ended are no longer due.
        """
        now, seen, window = self._now(), set[DueWait](), _DUE_WINDOW
        self._put_off = {wait: until for wait, until in self._put_off.items() if until > now}
        while found := await self._index.due(now, window):
            due = [wait for wait in found if wait not in seen and wait not in self._put_off]
            if due:
                group = due if len(due) <= _DUE_GROUP else self._chance.sample(due, _DUE_GROUP)
                seen.update(group)
                await self._each(group, self._expire, at_once=_WAITS_AT_ONCE)
            elif len(found) < window:
                return
            else:
                window *= 2

    async def _expire(self, wait: DueWait) -> None:
        try:
            await self._run_log.expire(wait.run_id, wait.node_id, _SWEEPER)
        except (CommandRejected, RunNotFoundError, InvalidInputError):
            # Another gateway ended it and the index does not know yet, or the snapshot is not one of ours.
            self._put_off[wait] = self._now() + PUT_OFF_SEC

    async def end_cancels(self) -> None:
        """End every cancel that no worker ended within the grace period."""
        overdue = self._now() - self._options.cancel_grace_sec - self._options.cancel_margin_sec
        query = RunQuery(status=RunStatus.CANCELLING.value, limit=200)
        while found := await self._index.page(query):
            asked = [run.summary for run in found if (run.summary.get("cancel_requested_at") or 0.0) < overdue]
            await self._each(asked, lambda summary: self._end_cancel(summary["run_id"]))
            query = msgspec.structs.replace(query, before=found[-1].cursor)

    async def _end_cancel(self, run_id: str) -> None:
        if await self._run_log.end_cancel(run_id):
            log_error(_log, "ERR-PYOCO-0021", action="cancel_ended_by_sweep", run_id=run_id)

    async def repair_snapshots(self) -> None:
        """Replace snapshots that have been behind their log for too long, and restore runs that have none."""
        overdue = self._lagging.overdue(self._now() - self._options.snapshot_sec)
        await self._each(overdue, lambda lag: self._repair(lag.run_id, lag.position))

    async def _repair(self, run_id: str, position: int) -> None:
        try:
            stored = await self._snapshots.read(run_id)
            if stored is None:
                await self._run_log.restore(run_id)
            elif stored.position < position:
                await self._run_log.update_snapshot(await self._run_log.open(run_id))
        except UnavailableError:
            self._lagging.appended(run_id, position, self._now())
            raise

    async def rescue(self) -> None:
        """Queue another job for each run without a heartbeat whose tag has no job in the queue."""
        since, after = self._now() - self._options.silent_sec, self._rescued_up_to
        silent = await self._index.silent(since, _MOST_SILENT, after=after)
        # Some stay silent, such as those of a tag without workers, so the next sweep continues behind these.
        self._rescued_up_to = silent[-1].place if len(silent) == _MOST_SILENT else None
        tagged = [(str(run.summary["run_id"]), tag) for run in silent if isinstance(tag := run.summary.get("tag"), str)]
        idle = {tag for tag in {tag for _, tag in tagged} if await self._look_whether_idle(tag)}
        lost = [run_id for run_id, tag in tagged if tag in idle]
        for run_id in lost:
            _log.warning(
                "run '%s' has no heartbeat and no job in the queue; a job is queued",
                run_id,
                extra={"action": "run_rescued", "run_id": run_id},
            )
        await self._each(lost, self._rescue)

    async def _look_whether_idle(self, tag: str) -> bool:
        """Has the tag no job that no worker has pulled yet?"""
        try:
            return await self._queue.backlog(tag) == 0
        except InvalidInputError:  # another program wrote that snapshot; no job can have such a tag
            return False

    async def _rescue(self, run_id: str) -> None:
        await self._run_log.rescue(run_id)

    async def _each(self, found: Sequence[T], do: Callable[[T], Awaitable[object]], *, at_once: int = AT_ONCE) -> None:
        gate = asyncio.Semaphore(at_once)

        async def one(item: T) -> None:
            async with gate:
                try:
                    await do(item)
                except (CommandRejected, RunNotFoundError, InvalidInputError):
                    return  # another process did it, the run is gone, or it never was a run

        await asyncio.gather(*(one(item) for item in found))

    def _now(self) -> float:
        return self._clock.now().timestamp()

"""Wake runs that are held for missing code, as soon as a worker announces that it has the code.

The index finds held runs, so nothing scans all runs. A worker that held a run is not asked again before its
announcement changes; and one run is not woken twice for one hold, unless its job was lost.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyoco_server.app.ports import Clock, RunIndex, RunQuery, WorkerRecord, WorkerRegistry
from pyoco_server.app.recovery.announced_flows import announced_at, announces, may_have
from pyoco_server.app.recovery.worker_views import ACTIVE, shown_state
from pyoco_server.app.runs.run_log import RunLog, RunNotFoundError
from pyoco_server.app.snapshots.projection import DECLINED_BY, HELD

_log = logging.getLogger(__name__)

AGAIN_SEC: Final = 30.0
"""A run that is still held so long after it was woken is woken again."""
A_PAGE: Final = 200
MOST_PAGES: Final = 5
"""How many held runs one sweep looks at is bounded; the next sweep continues where this one stopped."""
AT_ONCE: Final = 16


class _Hold(NamedTuple):
    """What a snapshot says of a held run."""

    run_id: str
    flow_name: str
    tag: str
    needs: tuple[str, ...]
    since: float
    declined_by: tuple[str, ...]


class HeldRuns:
    """Queues jobs for held runs; any number of gateways may do so at the same time."""

    def __init__(
        self, *, run_log: RunLog, index: RunIndex, workers: WorkerRegistry, clock: Clock, silent_sec: float
    ) -> None:
        """``silent_sec``: a worker that has not reported for so long is not live."""
        self._run_log = run_log
        self._index = index
        self._workers = workers
        self._clock = clock
        self._silent_sec = silent_sec
        self._woken: dict[str, tuple[float, float]] = {}
        self._query = RunQuery(held=True, oldest_first=True, limit=A_PAGE)

    async def wake(self) -> None:
        """Queue a job for every held run whose code a live worker may have now."""
        workers: list[WorkerRecord] | None = None
        query = self._query
        for _ in range(MOST_PAGES):
            page = await self._index.page(query)
            if page and workers is None:
                workers = await self._live()
            holds = [hold for run in page if (hold := _hold_of(run.summary)) is not None]
            await self._wake_all([hold for hold in holds if self._is_due(hold, workers or ())])
            if len(page) < A_PAGE:
                self._query = RunQuery(held=True, oldest_first=True, limit=A_PAGE)
                return
            query = RunQuery(held=True, oldest_first=True, limit=A_PAGE, before=page[-1].cursor)
        self._query = query

    async def _live(self) -> list[WorkerRecord]:
        now = self._now()
        records = await self._workers.all()
        return [each for each in records if shown_state(each, now=now, timeout_sec=self._silent_sec) in ACTIVE]

    def _is_due(self, hold: _Hold, workers: Sequence[WorkerRecord]) -> bool:
        since, woken_at = self._woken.get(hold.run_id, (0.0, 0.0))
        if since == hold.since and self._now() - woken_at < AGAIN_SEC:
            return False
        return any(_may_help(worker, hold) for worker in workers)

    async def _wake_all(self, holds: Sequence[_Hold]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(hold: _Hold) -> None:
            async with gate:
                try:
                    await self._run_log.wake_held(hold.run_id, hold.since)
                except RunNotFoundError:  # it was removed, and the index is about to forget it
                    return
                self._woken[hold.run_id] = (hold.since, self._now())
                _log.info(
                    "a worker announces the code that run '%s' is held for; a job is queued",
                    hold.run_id,
                    extra={"action": "held_run_woken", "run_id": hold.run_id},
                )

        now = self._now()
        self._woken = {run_id: each for run_id, each in self._woken.items() if now - each[1] < AGAIN_SEC}
        await asyncio.gather(*(one(hold) for hold in holds))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _hold_of(summary: Mapping[str, Any]) -> _Hold | None:
    """Return the hold that a summary describes; None if it describes none."""
    held, run_id, tag = summary.get(HELD), summary.get("run_id"), summary.get("tag")
    if not (isinstance(held, dict) and isinstance(run_id, str) and isinstance(tag, str)):
        return None
    since, declined = held.get("since"), summary.get(DECLINED_BY)
    return _Hold(
        run_id,
        str(summary.get("flow_name")),
        tag,
        _texts(held.get("needs")),
        float(since) if isinstance(since, int | float) else 0.0,
        _texts(declined),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _may_help(worker: WorkerRecord, hold: _Hold) -> bool:
    """May the worker have what the run is held for?

    One that held the run, and one that cannot enumerate its flows, is asked only after its announcement has changed.
    """
    if hold.tag not in (worker.get("tags") or ()) or not may_have(worker, hold.flow_name, hold.needs):
        return False
    is_new = announced_at(worker) > hold.since
    has_declined = worker.get("instance_id") in hold.declined_by
    return is_new or (announces(worker, hold.flow_name, hold.needs) and not has_declined)

"""Jobs the queue may have lost: those of runs that were submitted shortly before the connection to it broke.

The queue is derived from the logs, so the server need not have a job on disk before it says that it has it. A server
that crashes may lose the last of them. The log and the snapshot of such a run are there: whoever looks finds that it
waits for a worker, and queues its job again. The queue knows a job it still has by its id, and takes it once.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.ports import Clock, RunIndex, RunQuery, TooLargeError, UnavailableError
from pyoco_server.app.run_desk import RunDesk, RunNotFoundError
from pyoco_server.app.statuses import RunStatus
from pyoco_server.app.submitting import Submitter
from pyoco_server.app.waking import OUTSIDE
from pyoco_server.core.wire import JsonObject

_log = logging.getLogger(__name__)

LOST_SEC: Final = 180.0
"""What is older is on disk by now: the server writes what it holds every two minutes at the latest."""
_LOOK_SEC: Final = 0.5
_AT_ONCE: Final = 16


class LostJobs:
    """Queues again, at the start and whenever the connection was lost."""

    def __init__(
        self,
        *,
        keeper: IndexKeeper,
        index: RunIndex,
        desk: RunDesk,
        submitter: Submitter,
        clock: Clock,
        losses: Callable[[], int],
    ) -> None:
        """``losses``: how often the connection was lost so far."""
        self._keeper = keeper
        self._index = index
        self._desk = desk
        self._submitter = submitter
        self._clock = clock
        self._losses = losses

    async def run(self) -> None:
        """Look out for losses; until cancelled."""
        seen = -1
        while True:
            losses = self._losses()
            if losses != seen:
                try:
                    await self._until_index_is_current()
                    await self.queue_again()
                    seen = losses
                except UnavailableError:
                    pass  # it is not back yet
            await self._clock.sleep(_LOOK_SEC)

    async def _until_index_is_current(self) -> None:
        """What was submitted last is what may be lost, and what the index may not have seen yet."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() - self._keeper.lag_sec < began:
            await self._clock.sleep(_LOOK_SEC / 10)

    async def queue_again(self) -> None:
        """Make sure that the runs submitted lately that nobody has begun have their jobs; UnavailableError if not."""
        since = self._clock.now().timestamp() - LOST_SEC
        query = RunQuery(status=RunStatus.PENDING.value, limit=200)
        gate = asyncio.Semaphore(_AT_ONCE)
        while found := await self._index.page(query):
            lately = [run.summary for run in found if run.cursor.submitted_at >= since]
            await asyncio.gather(*(self._one(summary, gate) for summary in lately))
            if len(lately) < len(found):
                return
            query = msgspec.structs.replace(query, before=found[-1].cursor)

    async def _one(self, summary: JsonObject, gate: asyncio.Semaphore) -> None:
        if summary.get("tag") == OUTSIDE:
            return
        async with gate:
            try:
                run = await self._desk.open(summary["run_id"])
            except RunNotFoundError:  # written there by somebody else, who has queued it as well
                return
            if len(run.events) > 1:  # somebody has it, or it is over
                return
            try:
                await self._submitter.queue_again(run.events[0], run.projection.input, run.execution.position)
            except TooLargeError:  # it was refused when it was submitted, too
                _log.warning("a job is too large", extra={"action": "job_not_queued", "run_id": summary["run_id"]})

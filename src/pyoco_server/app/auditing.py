"""Looking over the runs that have not ended: what nobody was told of is noticed all the same.

Whoever appends to a log writes the snapshot as well, and a gateway that hears of the append sees to it that one comes.
But the one may die in between, and the other too, or not have heard of it: then the snapshot tells for ever how the run
stood before, and nobody drives a run that was cancelled while it waited. So the snapshots of open runs are held against
their logs, a few at a time, over and over.
"""

import logging
import math
from typing import Final

from pyoco_server.app.ports import Clock, Cursor, RunIndex, RunQuery, Snapshots, UnavailableError, head_of
from pyoco_server.app.retracting import was_taken_back
from pyoco_server.app.run_desk import RunDesk, RunNotFoundError
from pyoco_server.app.statuses import RunStatus
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

A_FEW: Final = 10
_OPEN: Final = (RunStatus.CANCELLING, RunStatus.RUNNING, RunStatus.PENDING)


class SnapshotAudit:
    """Walks through the open runs, some each time it is asked, and rests when it has seen all of them."""

    def __init__(
        self, *, desk: RunDesk, index: RunIndex, snapshots: Snapshots, clock: Clock, interval_sec: float
    ) -> None:
        """``interval_sec``: how much time passes at least between two looks at the same run."""
        self._desk = desk
        self._index = index
        self._snapshots = snapshots
        self._clock = clock
        self._interval_sec = interval_sec
        self._began_at = -math.inf
        self._status = 0
        self._before: Cursor | None = None

    async def audit(self) -> None:
        """Hold the next few snapshots against their logs, and write those anew that are behind."""
        if self._status == 0 and self._before is None:
            now = self._clock.now().timestamp()
            if now < self._began_at + self._interval_sec:
                return
            self._began_at = now
        query = RunQuery(status=_OPEN[self._status].value, before=self._before, limit=A_FEW)
        found = await self._index.page(query)
        for run in found:
            await self._look_at(run.cursor.run_id)
        if len(found) == A_FEW:
            self._before = found[-1].cursor
        else:
            self._status, self._before = (self._status + 1) % len(_OPEN), None

    async def _look_at(self, run_id: str) -> None:
        """One that cannot be read must not keep the others from being looked at."""
        try:
            await self._mend(run_id)
        except (RunNotFoundError, InvalidInputError):
            return  # whoever writes into the bucket by hand may give a snapshot a name no run can have
        except UnavailableError:
            raise
        except PyocoServerError as error:
            log_error(_log, "ERR-PYOCO-0106", action="run_not_audited", exc=error, run_id=run_id)

    async def _mend(self, run_id: str) -> None:
        stored = await self._snapshots.read(run_id)
        run = await self._desk.open(run_id)
        if stored is None:
            return
        if was_taken_back(run.execution.state):
            await self._snapshots.delete(run_id)  # whoever took it back has died before they could
        elif stored.position < run.execution.position or head_of(stored.body).is_foreign:
            await self._desk.write(run)

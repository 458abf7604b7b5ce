"""Compares the snapshots of open runs with their logs, a few at a time, again and again.

The process that appends to a log also writes the snapshot, and a gateway that sees the append checks that it did. Both
may die in between, or miss the append: then the snapshot stays old forever, and a run that was cancelled while it
waited has no owner that would write it. This audit finds such runs.
"""

import logging
import math
from typing import Final

from pyoco_server.app.ports import Clock, Cursor, RunIndex, RunQuery, SnapshotReader, UnavailableError, head_of
from pyoco_server.app.runs.run_log import RunLog, RunNotFoundError
from pyoco_server.app.snapshots.status import RunStatus, was_retracted
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

A_FEW: Final = 10
_OPEN: Final = (RunStatus.CANCELLING, RunStatus.RUNNING, RunStatus.PENDING)


class SnapshotAudit:
    """Visits the open runs, a few for each call, and pauses after each full pass."""

    def __init__(
        self, *, run_log: RunLog, index: RunIndex, snapshots: SnapshotReader, clock: Clock, interval_sec: float
    ) -> None:
        """``interval_sec``: the least time between the starts of two passes."""
        self._run_log = run_log
        self._index = index
        self._snapshots = snapshots
        self._clock = clock
        self._interval_sec = interval_sec
        self._began_at = -math.inf
        self._status = 0
        self._before: Cursor | None = None

    async def audit(self) -> None:
        """Compare the next few snapshots with their logs, and replace those that are behind."""
        if self._status == 0 and self._before is None:
            now = self._clock.now().timestamp()
            if now < self._began_at + self._interval_sec:
                return
            self._began_at = now
        query = RunQuery(status=_OPEN[self._status].value, before=self._before, limit=A_FEW)
        found = await self._index.page(query)
        for run in found:
            await self._audit_run(run.cursor.run_id)
        if len(found) == A_FEW:
            self._before = found[-1].cursor
        else:
            self._status, self._before = (self._status + 1) % len(_OPEN), None

    async def _audit_run(self, run_id: str) -> None:
        """Repair one snapshot; a run that cannot be read is logged, so that the others are audited."""
        try:
            await self._repair(run_id)
        except (RunNotFoundError, InvalidInputError):
            return  # other programs may use keys in the bucket that no run can have
        except UnavailableError:
            raise
        except PyocoServerError as error:
            log_error(_log, "ERR-PYOCO-0106", action="run_not_audited", exc=error, run_id=run_id)

    async def _repair(self, run_id: str) -> None:
        stored = await self._snapshots.read(run_id)
        run = await self._run_log.open(run_id)
        if stored is None:
            return
        is_left = was_retracted(run.execution.state)  # the process that retracted the run died before it removed it
        if is_left or stored.position < run.execution.position or head_of(stored.body).is_foreign:
            await self._run_log.update_snapshot(run)

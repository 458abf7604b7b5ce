"""Snapshots that other programs wrote, as the gateway's feed shows them: each is brought together with its log.

A gateway reads every change of every snapshot anyway, so this costs nothing for the runs of our own workers. A run is
noted when its snapshot is foreign, and reconciled at once: a cancel that another gateway accepted must reach the
worker before its task ends. A snapshot that claims an end or a cancel is noted as it was, in its order: programs that
write blindly overwrite what others wrote a moment before, and no accepted cancel must be lost that way, even if its
run has no log. A process that dies in between loses its notes; the audit of open runs and the comparison of logs with
snapshots (:mod:`.rebuild`) find those runs again.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from pyoco_server.app.ports import (
    SnapshotChange,
    SnapshotHead,
    StoredSnapshot,
    TooLargeError,
    UnavailableError,
    head_of,
)
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.snapshots.foreign import SHOWN_SEC
from pyoco_server.app.snapshots.status import TERMINAL_RUN, RunStatus
from pyoco_server.errors import InvalidInputError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 16
_PAUSE_SEC: Final = 0.5
"""Before the next try when the log or the snapshots could not be reached."""
_MOST_NOTES: Final = 16
"""So many claims of one run are kept until it is reconciled; the stored snapshot is read anyway."""
_CLAIMS: Final = TERMINAL_RUN | {RunStatus.CANCELLING}


class ForeignWrites:
    """Notes runs whose snapshot another program wrote, and reconciles them."""

    def __init__(self, run_log: RunLog) -> None:
        self._run_log = run_log
        self._noted: dict[str, dict[int, StoredSnapshot]] = {}
        self._is_noted = asyncio.Event()

    def announced(self, _: str, change: SnapshotChange | None) -> None:
        """A snapshot was written, and perhaps overwritten since."""
        if change is not None and change.body is not None:
            self.changed(change, head_of(change.body))

    def changed(self, change: SnapshotChange, head: SnapshotHead) -> None:
        """A snapshot was written."""
        if change.body is not None and head.is_foreign:
            stored = StoredSnapshot(change.run_id, change.body, head.log_position, change.sequence)
            notes = self._noted.get(change.run_id, {})
            self.note(change.run_id, [stored] if _claims(head) and len(notes) < _MOST_NOTES else [])

    def note(self, run_id: str, snapshots: Sequence[StoredSnapshot] = ()) -> None:
        """Reconcile the run soon, with what its snapshot said for a time."""
        self._noted.setdefault(run_id, {}).update({stored.revision: stored for stored in snapshots})
        self._is_noted.set()

    async def run(self) -> None:
        """Reconcile what is noted, until cancelled."""
        while True:
            await self._is_noted.wait()
            if not await self.reconcile_noted():
                await asyncio.sleep(_PAUSE_SEC)

    async def reconcile_noted(self) -> bool:
        """Reconcile what is noted now; False if some of it has to be tried again."""
        self._is_noted.clear()
        noted, self._noted = self._noted, {}
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(run_id: str) -> bool:
            async with gate:
                return await self._try_to_reconcile(run_id, [noted[run_id][number] for number in sorted(noted[run_id])])

        return all(await asyncio.gather(*(one(run_id) for run_id in noted)))

    async def _try_to_reconcile(self, run_id: str, snapshots: Sequence[StoredSnapshot]) -> bool:
        try:
            if not await self._run_log.reconcile(run_id, snapshots):
                asyncio.get_running_loop().call_later(SHOWN_SEC, self.note, run_id)
        except UnavailableError:
            self.note(run_id, snapshots)
            return False
        except InvalidInputError:  # the bucket takes keys that no run of ours can have
            return True
        except TooLargeError as error:
            log_error(_log, "ERR-PYOCO-0010", action="snapshot_refused", exc=error, run_id=run_id)
        except Exception as error:  # noqa: BLE001 logged; one snapshot must not hold up those of other runs
            log_error(_log, "ERR-PYOCO-0106", action="snapshot_not_adopted", exc=error, run_id=run_id)
        return True


def _claims(head: SnapshotHead) -> bool:
    """May the snapshot say something that the log has to take over?"""
    return head.cancel_requested_at is not None or (isinstance(head.status, str) and head.status in _CLAIMS)

"""Snapshots that other programs wrote, as the gateway's feed shows them: each is brought together with its log.

A gateway reads every change of every snapshot anyway, so this costs nothing for the runs of our own workers. A run is
noted when its snapshot is foreign, and reconciled at once: a cancel that another gateway accepted must reach the worker
before its task ends. A process that dies in between loses its notes; the audit of open runs and the survey of logs that
have only begun find those runs again.
"""

import asyncio
import logging
from typing import Final

from pyoco_server.app.ports import SnapshotChange, SnapshotHead, TooLargeError, UnavailableError
from pyoco_server.app.run_desk import RunDesk
from pyoco_server.errors import InvalidInputError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 16
_PAUSE_SEC: Final = 0.5
"""Before the next try when the log or the snapshots could not be reached."""


class ForeignWrites:
    """Notes runs whose snapshot another program wrote, and reconciles them."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk
        self._noted: dict[str, None] = {}
        self._is_noted = asyncio.Event()

    def changed(self, change: SnapshotChange, head: SnapshotHead) -> None:
        """A snapshot was written."""
        if head.is_foreign:
            self.note(change.run_id)

    def note(self, run_id: str) -> None:
        """Reconcile the run soon."""
        self._noted[run_id] = None
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
        noted, self._noted = [*self._noted], {}
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(run_id: str) -> bool:
            async with gate:
                return await self._is_reconciled(run_id)

        return all(await asyncio.gather(*(one(run_id) for run_id in noted)))

    async def _is_reconciled(self, run_id: str) -> bool:
        try:
            await self._desk.reconcile(run_id)
        except UnavailableError:
            self.note(run_id)
            return False
        except InvalidInputError:  # the bucket takes keys that no run of ours can have
            return True
        except TooLargeError as error:
            log_error(_log, "ERR-PYOCO-0010", action="snapshot_refused", exc=error, run_id=run_id)
        except Exception as error:  # noqa: BLE001 logged; one snapshot must not hold up those of other runs
            log_error(_log, "ERR-PYOCO-0106", action="snapshot_not_adopted", exc=error, run_id=run_id)
        return True

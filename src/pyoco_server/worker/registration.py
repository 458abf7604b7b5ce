"""The worker's entry in the registry: its name, its tags, the runs it drives, and its heartbeat."""

import asyncio
import contextlib
import logging
from enum import StrEnum, unique
from typing import Any, Final

from pyoco_server.app.ports import Clock, UnavailableError, WorkerRecord, WorkerRegistry
from pyoco_server.app.recovery.announced_flows import FLOWS, FLOWS_AT, Announcement, bounded
from pyoco_server.app.recovery.worker_views import ACTIVE, LOST_INSTANCE, shown_state
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

SILENT_BEATS: Final = 4
"""A worker that missed so many of its heartbeats does not count as live."""

PACE_SEC: Final = 0.2
"""The least time between two writes: quick runs begin and end more often than readers need to know."""


@unique
class WorkerState(StrEnum):
    """The state of a worker, as the registry names it."""

    RUNNING = "RUNNING"
    IDLE = "IDLE"
    STOPPED_GRACEFUL = "STOPPED_GRACEFUL"
    DISCONNECTED = "DISCONNECTED"


class WorkerRegistration:
    """Keeps the registry up to date; what an operator wrote into the entry stays."""

    def __init__(
        self,
        registry: WorkerRegistry,
        clock: Clock,
        *,
        worker_id: str,
        instance_id: str,
        tags: tuple[str, ...],
        interval_sec: float,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._worker_id = worker_id
        self.instance_id = instance_id
        self._interval_sec = interval_sec
        self._running: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._fields: WorkerRecord = {
            "worker_id": worker_id,
            "instance_id": instance_id,
            "tags": list(tags),
            "state": WorkerState.IDLE.value,
            "current_run_id": None,
            "current_run_ids": [],
            "last_run_id": None,
            "last_run_status": None,
            "last_run_started_at": None,
            "last_run_finished_at": None,
            "stopped_at": None,
            "stop_reason": None,
            FLOWS: None,
            FLOWS_AT: self._now(),
        }

    def run_started(self, run_id: str) -> None:
        """Add a run that the worker drives."""
        self._running[run_id] = self._now()
        self._update_state()

    def run_finished(self, run_id: str, status: str | None) -> None:
        """Remove a run that the worker no longer drives."""
        began = self._running.pop(run_id, None)
        self._fields.update(
            last_run_id=run_id, last_run_status=status, last_run_started_at=began, last_run_finished_at=self._now()
        )
        self._update_state()

    def note(self, **fields: Any) -> None:  # noqa: ANN401 any JSON
        """Add fields to the entry."""
        self._fields.update(fields)
        self._changed.set()

    def note_flows(self, flows: Announcement | None) -> None:
        """Announce which flows this worker has; None if they cannot be enumerated."""
        self.note(**{FLOWS: bounded(flows), FLOWS_AT: self._now()})

    async def others(self) -> list[WorkerRecord]:
        """Return the records of the other workers that are live; UnavailableError if the registry cannot be read."""
        now, timeout_sec = self._now(), SILENT_BEATS * self._interval_sec
        return [
            record
            for record in await self._registry.all()
            if record.get("instance_id") != self.instance_id
            and shown_state(record, now=now, timeout_sec=timeout_sec) in ACTIVE
        ]

    async def announce(self) -> None:
        """Write the entry; UnavailableError if the outcome is unknown."""
        await self._registry.update(self._worker_id, self._merged)

    async def keep(self) -> None:
        """Write the entry when it changes, and every interval; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_sec):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.announce()
            except UnavailableError as error:
                log_error(_log, "ERR-PYOCO-0003", action="presence_untold", exc=error, level=logging.WARNING)
            await asyncio.sleep(PACE_SEC)

    async def stopped(self, reason: str) -> None:
        """Write that the worker has stopped, and why."""
        self._running.clear()
        self._update_state()
        self._fields.update(state=WorkerState.STOPPED_GRACEFUL.value, stopped_at=self._now(), stop_reason=reason)
        await self.announce()

    def _update_state(self) -> None:
        current = next(iter(self._running), None)
        self._fields["state"] = (WorkerState.IDLE if current is None else WorkerState.RUNNING).value
        self._fields["current_run_id"] = current
        self._fields["current_run_ids"] = [*self._running]
        self._changed.set()

    def _merged(self, found: WorkerRecord | None) -> WorkerRecord:
        now = self._now()
        hidden = bool((found or {}).get("hidden", False))
        merged = {**(found or {}), **self._fields, "hidden": hidden, "last_seen_at": now, "last_heartbeat_at": now}
        if merged.get(LOST_INSTANCE) == merged["instance_id"]:  # a gateway took this worker for dead, and it is not
            merged[LOST_INSTANCE] = None
        return merged

    def _now(self) -> float:
        return self._clock.now().timestamp()

"""Workers as clients see them: a worker without a heartbeat for too long is DISCONNECTED."""

from collections.abc import Iterable
from typing import Final

from pyoco_server.app.ports import WorkerRecord

ACTIVE: Final = frozenset({"RUNNING", "IDLE"})
LOST_INSTANCE: Final = "lost_instance_id"
"""The field of a record that names the dead process whose jobs were released last."""
HIDDEN_FOR: Final = "hidden_for"
"""The field of a record with what tenants chose for their own lists: hidden or shown, by tenant."""
STATES: Final = ("RUNNING", "IDLE", "STOPPED_GRACEFUL", "DISCONNECTED")
_ALWAYS: Final[WorkerRecord] = {
    "worker_id": None,
    "instance_id": None,
    "state": "DISCONNECTED",
    "hidden": False,
    "last_seen_at": None,
    "last_heartbeat_at": None,
    "tags": [],
    "current_run_id": None,
    "last_run_id": None,
    "last_run_status": None,
    "stopped_at": None,
    "stop_reason": None,
}


def shown_state(record: WorkerRecord, *, now: float, timeout_sec: float) -> str:
    """Return the worker's state; one that stopped gracefully never becomes DISCONNECTED."""
    state = str(record.get("state", "DISCONNECTED"))
    if state in ACTIVE and now - _seen(record) > timeout_sec:
        return "DISCONNECTED"
    return state if state in STATES else "DISCONNECTED"


def shown(records: Iterable[WorkerRecord], *, now: float, timeout_sec: float) -> list[WorkerRecord]:
    """Return all records with their present states and all required fields, newest heartbeat first."""
    found = [
        {**_ALWAYS, **record, "state": shown_state(record, now=now, timeout_sec=timeout_sec)} for record in records
    ]
    for record in found:
        record.pop(HIDDEN_FOR, None)
    return sorted(found, key=lambda record: (-_seen(record), str(record["worker_id"])))


def selected(
    workers: Iterable[WorkerRecord], *, active_only: bool, state: str | None, include_hidden: bool
) -> list[WorkerRecord]:
    """Return the workers that match the filters."""
    return [
        worker
        for worker in workers
        if (not active_only or worker["state"] in ACTIVE)
        and (state is None or worker["state"] == state)
        and (include_hidden or worker["hidden"] is not True)
    ]


def _seen(record: WorkerRecord) -> float:
    seen = record.get("last_seen_at")
    return float(seen) if isinstance(seen, int | float) else 0.0

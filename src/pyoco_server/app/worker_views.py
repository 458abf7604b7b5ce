"""Workers as they are shown: a worker that is silent for too long is taken for gone."""

from collections.abc import Iterable

from pyoco_server.app.ports import WorkerRecord

ACTIVE = frozenset({"RUNNING", "IDLE"})


def shown_state(record: WorkerRecord, *, now: float, timeout_sec: float) -> str:
    """The worker's state; one that said good-bye is not disconnected, however long ago that was."""
    state = str(record.get("state", "DISCONNECTED"))
    seen = record.get("last_seen_at")
    if state in ACTIVE and (not isinstance(seen, int | float) or now - seen > timeout_sec):
        return "DISCONNECTED"
    return state


def shown(records: Iterable[WorkerRecord], *, now: float, timeout_sec: float) -> list[WorkerRecord]:
    """All records with their states as of now, the one seen last first."""
    told = [{**record, "state": shown_state(record, now=now, timeout_sec=timeout_sec)} for record in records]
    return sorted(told, key=lambda record: (-float(record.get("last_seen_at") or 0.0), str(record.get("worker_id"))))

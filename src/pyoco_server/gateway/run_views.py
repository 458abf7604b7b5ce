"""How runs are shown: what a snapshot becomes on its way out."""

from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import Query

from pyoco_server.app.ports import WorkerRecord
from pyoco_server.core.wire import JsonObject

_TASKS: Final[JsonObject] = {
    "run_id": None,
    "flow_name": None,
    "status": None,
    "tasks": {},
    "task_records": {},
    "task_records_truncated": False,
    "waiting": [],
    "updated_at": None,
}


class Part(StrEnum):
    """What may be included in an answer beyond the usual."""

    RECORDS = "records"
    FULL = "full"
    ALL = "all"


Include = Annotated[
    list[Part] | None,
    Query(description="`records`, or all there is: `full`, `all`. May be repeated."),
]


def wants_records(include: list[Part] | None) -> bool:
    """Are task records asked for?"""
    return bool(include)


def wants_full(include: list[Part] | None) -> bool:
    """Are whole snapshots asked for in a list?"""
    return bool({Part.FULL, Part.ALL} & set(include or ()))


def snapshot_view(snapshot: JsonObject, *, records: bool) -> JsonObject:
    """A snapshot as it is shown; task records only where they are asked for."""
    if records:
        return snapshot
    return {name: value for name, value in snapshot.items() if name != "task_records"}


def tasks_view(snapshot: JsonObject) -> JsonObject:
    """The tasks of a run and their records."""
    return {name: snapshot.get(name, otherwise) for name, otherwise in _TASKS.items()}


def with_worker(snapshot: JsonObject, record: WorkerRecord | None, *, now: float, timeout_sec: float) -> JsonObject:
    """Whether the run's worker lives."""
    seen: Any = (record or {}).get("last_heartbeat_at")
    gone = record is None or record.get("state") in {"STOPPED_GRACEFUL", "DISCONNECTED"}
    alive = not gone and isinstance(seen, int | float) and now - seen <= timeout_sec
    return {
        **snapshot,
        "worker_alive": alive,
        "worker_heartbeat_at": seen,
        "worker_tags": (record or {}).get("tags"),
    }

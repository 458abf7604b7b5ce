"""What answers show of a run: views of its snapshot, and which parts of it a request includes."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import Query

from pyoco_server.app.ports import LOG_STATUS, WorkerRecord
from pyoco_server.app.snapshots.projection import DECLINED_BY, RELEASED_AT, TASK_TALLIES
from pyoco_server.core.json_codec import JsonObject

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


NOT_SHOWN: Final = frozenset({"log_position", LOG_STATUS, RELEASED_AT, DECLINED_BY})
"""Fields that no answer has: positions in the log of all runs, which would show how busy other tenants are, and what
only the reconciler of held runs needs."""


class Part(StrEnum):
    """What an answer may include beyond the usual."""

    RECORDS = "records"
    FULL = "full"
    ALL = "all"


Include = Annotated[
    list[Part] | None,
    Query(description="`records`, or all there is: `full`, `all`. May be repeated."),
]


def wants_records(include: list[Part] | None) -> bool:
    """Whether the answer includes task records."""
    return bool(include)


def wants_full(include: list[Part] | None) -> bool:
    """Whether a list includes whole snapshots."""
    return bool({Part.FULL, Part.ALL} & set(include or ()))


def snapshot_view(snapshot: JsonObject, *, records: bool) -> JsonObject:
    """Return the snapshot as answers show it, with its task records or without."""
    hidden = NOT_SHOWN if records else NOT_SHOWN | {"task_records"}
    return {name: value for name, value in snapshot.items() if name not in hidden}


def by_change(runs: list[JsonObject]) -> list[JsonObject]:
    """Sort runs by their last change, newest first; those without a time come last."""
    return sorted(runs, key=_changed_at, reverse=True)


def _changed_at(run: JsonObject) -> float:
    updated_at = run.get("updated_at")
    return float(updated_at) if isinstance(updated_at, int | float) else 0.0


def add_redriven(snapshot: JsonObject, redriven: Mapping[str, Sequence[str]]) -> None:
    """Add the runs that repeat this one, if there are any."""
    found = redriven.get(str(snapshot.get("run_id")))
    if found:
        snapshot["redriven_as"] = list(found)


def tasks_view(snapshot: JsonObject) -> JsonObject:
    """Return the tasks of a run and their records."""
    counted = {TASK_TALLIES: snapshot[TASK_TALLIES]} if TASK_TALLIES in snapshot else {}
    return {name: snapshot.get(name, default) for name, default in _TASKS.items()} | counted


def with_worker(snapshot: JsonObject, record: WorkerRecord | None, *, now: float, timeout_sec: float) -> JsonObject:
    """Add whether the run's worker is alive."""
    seen: Any = (record or {}).get("last_heartbeat_at")
    gone = record is None or record.get("state") in {"STOPPED_GRACEFUL", "DISCONNECTED"}
    alive = not gone and isinstance(seen, int | float) and now - seen <= timeout_sec
    return {
        **snapshot,
        "worker_alive": alive,
        "worker_heartbeat_at": seen,
        "worker_tags": (record or {}).get("tags"),
    }

"""How runs are shown: what a snapshot becomes on its way out."""

from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import Query

from pyoco_server.app.ports import LOG_STATUS, WorkerRecord
from pyoco_server.app.projection import DECLINED_BY, LET_GO_AT, TASK_TALLIES
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


NOT_SHOWN: Final = frozenset({"log_position", LOG_STATUS, LET_GO_AT, DECLINED_BY})
"""Positions in the log of all runs, which tell how busy everybody is; ``version`` counts what the run itself did.
And what only those need that wake held runs."""


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
    hidden = NOT_SHOWN if records else NOT_SHOWN | {"task_records"}
    return {name: value for name, value in snapshot.items() if name not in hidden}


def by_change(runs: list[JsonObject]) -> list[JsonObject]:
    """Those that changed last first; what says nothing of when comes last."""
    return sorted(runs, key=_changed_at, reverse=True)


def _changed_at(run: JsonObject) -> float:
    said = run.get("updated_at")
    return float(said) if isinstance(said, int | float) else 0.0


def tasks_view(snapshot: JsonObject) -> JsonObject:
    """The tasks of a run and their records."""
    counted = {TASK_TALLIES: snapshot[TASK_TALLIES]} if TASK_TALLIES in snapshot else {}
    return {name: snapshot.get(name, otherwise) for name, otherwise in _TASKS.items()} | counted


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

"""How runs are shown: what a snapshot becomes on its way out."""

from typing import Any

import msgspec

from pyoco_server.app.ports import WorkerRecord
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError

RECORDS = frozenset({"records", "full", "all"})
FULL = frozenset({"full", "all"})


def wants_records(include: list[str] | None) -> bool:
    """Are task records asked for? InvalidInputError for a word there is not."""
    _check(include, RECORDS)
    return bool(RECORDS & set(include or ()))


def wants_full(include: list[str] | None) -> bool:
    """Are whole snapshots asked for in a list?"""
    _check(include, RECORDS)
    return bool(FULL & set(include or ()))


def _check(include: list[str] | None, allowed: frozenset[str]) -> None:
    for word in include or ():
        if word not in allowed:
            raise InvalidInputError(f"include: '{word}' is not one of {', '.join(sorted(allowed))}")


def snapshot_view(body: bytes | JsonObject, *, records: bool) -> JsonObject:
    """A snapshot as it is shown; task records only where they are asked for."""
    snapshot: JsonObject = msgspec.json.decode(body) if isinstance(body, bytes) else dict(body)
    if not records:
        snapshot.pop("task_records", None)
    return snapshot


def tasks_view(body: bytes) -> JsonObject:
    """The tasks of a run and their records."""
    snapshot: JsonObject = msgspec.json.decode(body)
    kept = ("run_id", "flow_name", "status", "tasks", "task_records", "task_records_truncated", "waiting", "updated_at")
    return {name: snapshot.get(name) for name in kept}


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

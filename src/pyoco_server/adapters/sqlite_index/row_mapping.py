"""Convert a snapshot to the row that the index keeps: a summary for lists, and the columns that queries need."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.app.snapshots.projection import DRIVEN_OUTSIDE, HELD, REDRIVE, STORED_BYTES
from pyoco_server.app.snapshots.status import TERMINAL_RUN, RunStatus, TaskStatus

SUMMARY_BYTES: Final = 16 * 1024
"""The largest summary of a run."""

TRUNCATED: Final = "summary_truncated"

_LONG: Final = ("params", "task_records", "wheels")
_MOST_CHARACTERS: Final = 100
_MOST_TAGS: Final = 5
_MOST_WAITING: Final = 3
_SCALARS: Final[tuple[str, ...]] = (
    "run_id", "flow_name", "status", "heartbeat_at", "updated_at", "tag", "submitted_at", "worker_id", "driven_by",
    "task_records_truncated", "params_truncated", "start_time", "end_time", "error", "cancel_requested_at",
    "cancel_requested_by", "cancel_reason", "archived_at", "version", "log_position", "tenant_id", "api_key_id",
    "workflow_yaml_sha256", "workflow_yaml_bytes",
)  # fmt: skip

_MOST_BYTES: Final = 1 << 50
"""No snapshot is believed more, so that sums stay within SQLite's integers."""
_OF_HOLD: Final = ("since", "seen_by")
_MOST_NEEDS: Final = 5
_OF_WAITING: Final = ("node_id", "task", "wait_key", "prompt", "deadline")


def summary_of(run_id: str, snapshot: dict[str, Any]) -> bytes:
    """Return the summary as JSON. If it is too large, drop first the tasks, then all but short known values."""
    summary = {name: value for name, value in snapshot.items() if name not in _LONG}
    summary["run_id"] = run_id
    body = msgspec.json.encode(summary)
    if len(body) <= SUMMARY_BYTES:
        return body
    for shorter in ({**summary, "tasks": {}, TRUNCATED: True}, _shortest(summary)):
        body = msgspec.json.encode(shorter)
        if len(body) <= SUMMARY_BYTES:
            return body
    return msgspec.json.encode({"run_id": run_id, "status": _short(snapshot["status"]), "tasks": {}, TRUNCATED: True})


def _shortest(summary: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {name: _short(summary[name]) for name in _SCALARS if name in summary}
    waiting = [
        {name: _short(node[name]) for name in _OF_WAITING if name in node}
        for node in _list(summary.get("waiting"))[:_MOST_WAITING]
        if isinstance(node, dict)
    ]
    tags = [_short(tag) for tag in _list(summary.get("tags"))[:_MOST_TAGS]]
    return {**known, "tags": tags, "tasks": {}, "waiting": waiting, **_held(summary), TRUNCATED: True}


def _held(summary: dict[str, Any]) -> dict[str, Any]:
    held = summary.get("held")
    if not isinstance(held, dict):
        return {}
    needs = [_short(name) for name in _list(held.get("needs"))[:_MOST_NEEDS]]
    return {"held": {"needs": needs, **{name: _short(held[name]) for name in _OF_HOLD if name in held}}}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _short(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…"
    return value if isinstance(value, int | float) else None


_SNAPSHOT: Final = msgspec.json.Decoder(dict[str, Any])


class Row(NamedTuple):
    """A run as the index keeps it."""

    status: str
    tenant: str | None
    flow: str | None
    tag: str | None
    yaml: str | None
    submitted_at: float | None
    """None if the snapshot has none."""
    updated_at: float
    started_at: float
    """The time that is used if the snapshot has no time of submission."""
    queued_sec: float | None
    """From submission to the start; None if the snapshot does not say, or the run has not ended."""
    whole_sec: float | None
    """From submission to the end; None likewise."""
    is_held: bool
    """Whether it is held because no worker has the code it needs next."""
    redrive_of: str | None
    """The run that it repeats."""
    alive_at: float | None
    """The last heartbeat; None if none is expected."""
    size: int
    """The bytes of the snapshot, and of what was too large for it."""
    deadlines: Mapping[str, float]
    """The deadlines of nodes that wait, by node id."""
    summary: bytes


def row_of(change: SnapshotChange) -> Row | None:
    """Return the row of a change; None if it does not hold a snapshot."""
    if change.body is None:
        return None
    try:
        snapshot = _SNAPSHOT.decode(change.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    status = snapshot.get("status")
    if not isinstance(status, str):
        return None
    updated_at = _moment(snapshot.get("updated_at")) or 0.0
    waiting = _objects(snapshot.get("waiting"))
    ended = status in TERMINAL_RUN
    alive_at = max(updated_at, _moment(snapshot.get("heartbeat_at")) or 0.0)
    submitted_at = _moment(snapshot.get("submitted_at")) or None
    return Row(
        status=status,
        tenant=_text(snapshot.get("tenant_id")),
        flow=_text(snapshot.get("flow_name")),
        tag=_text(snapshot.get("tag")),
        yaml=_text(snapshot.get("workflow_yaml_sha256")),
        submitted_at=submitted_at,
        updated_at=updated_at,
        started_at=_moment(snapshot.get("start_time")) or updated_at,
        queued_sec=_between(submitted_at, _moment(snapshot.get("start_time"))) if ended else None,
        whole_sec=_between(submitted_at, _moment(snapshot.get("end_time")) or updated_at) if ended else None,
        is_held=_is_held(snapshot),
        redrive_of=_text(redrive.get("of")) if isinstance(redrive := snapshot.get(REDRIVE), dict) else None,
        alive_at=alive_at if _is_watched(snapshot, waiting) else None,
        size=len(change.body) + sum(_whole(snapshot.get(name)) for name in (STORED_BYTES, "workflow_yaml_bytes")),
        deadlines={} if ended else _deadlines(waiting),
        summary=summary_of(change.run_id, snapshot),
    )


def _whole(value: object) -> int:
    return min(value, _MOST_BYTES) if isinstance(value, int) and value > 0 else 0


def _is_watched(snapshot: dict[str, Any], waiting: list[dict[str, Any]]) -> bool:
    """Return whether heartbeats are expected."""
    if snapshot["status"] in TERMINAL_RUN or snapshot.get(DRIVEN_OUTSIDE) is True:
        return False
    return not _merely_waits(snapshot, waiting) and not _is_held(snapshot)


def _is_held(snapshot: dict[str, Any]) -> bool:
    """Return whether the run is held; not if it has ended, has an owner, or is being cancelled."""
    stands = snapshot["status"] not in TERMINAL_RUN and snapshot["status"] != RunStatus.CANCELLING
    return stands and isinstance(snapshot.get(HELD), dict) and snapshot.get("driven_by") is None


def _merely_waits(snapshot: dict[str, Any], waiting: list[dict[str, Any]]) -> bool:
    if not waiting or snapshot.get("driven_by") is not None or snapshot["status"] == RunStatus.CANCELLING:
        return False
    records = snapshot.get("task_records")
    if isinstance(records, dict) and records:
        parked = {_text(node.get("node_id")) for node in waiting}
        running = {name for name, record in records.items() if _status_of(record) == TaskStatus.RUNNING}
    else:
        parked = {_text(node.get("task")) for node in waiting}
        tasks = snapshot.get("tasks")
        running = {name for name, status in _items(tasks) if status == TaskStatus.RUNNING}
    return running <= parked


def _deadlines(waiting: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in waiting:
        node_id, deadline = node.get("node_id"), node.get("deadline")
        if isinstance(node_id, str) and isinstance(deadline, str):
            try:
                moment = msgspec.convert(deadline, datetime)
            except msgspec.ValidationError:
                continue
            found[node_id] = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return found


def _between(begin: float | None, end: float | None) -> float | None:
    """Return the seconds between two times, at least 0: clocks of two machines may disagree on the order."""
    return None if begin is None or end is None else max(0.0, end - begin)


def _status_of(record: object) -> object:
    return record.get("status") if isinstance(record, dict) else None


def _items(value: object) -> list[tuple[str, object]]:
    return [*value.items()] if isinstance(value, dict) else []


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _moment(value: object) -> float | None:
    """Return a time in seconds; snapshots of other programs may hold any value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None

"""From a snapshot to what the index keeps of it."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.adapters.readmodel.summaries import summary_of
from pyoco_server.app.ports import SnapshotChange
from pyoco_server.app.projection import DRIVEN_OUTSIDE, HELD
from pyoco_server.app.statuses import TERMINAL_RUN, RunStatus, TaskStatus

_SNAPSHOT: Final = msgspec.json.Decoder(dict[str, Any])


class Row(NamedTuple):
    """A run as the index keeps it."""

    status: str
    tenant: str | None
    flow: str | None
    tag: str | None
    yaml: str | None
    submitted_at: float | None
    """None if the snapshot does not say."""
    updated_at: float
    started_at: float
    """The best guess at when it was submitted, if nobody has said."""
    queued_sec: float | None
    """From submission to the start; None if the snapshot does not say, or it has not ended."""
    whole_sec: float | None
    """From submission to the end, likewise."""
    is_held: bool
    """Is it held because no worker has the code it needs next?"""
    alive_at: float | None
    """The last sign of life; None if none is to be expected."""
    deadlines: Mapping[str, float]
    """Of the nodes that wait with one."""
    summary: bytes


def row_of(change: SnapshotChange) -> Row | None:
    """What is kept of a snapshot; None if it is none."""
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
        alive_at=alive_at if _is_watched(snapshot, waiting) else None,
        deadlines={} if ended else _deadlines(waiting),
        summary=summary_of(change.run_id, snapshot),
    )


def _is_watched(snapshot: dict[str, Any], waiting: list[dict[str, Any]]) -> bool:
    """Is a sign of life to be expected?"""
    if snapshot["status"] in TERMINAL_RUN or snapshot.get(DRIVEN_OUTSIDE) is True:
        return False
    return not _merely_waits(snapshot, waiting) and not _is_held(snapshot)


def _is_held(snapshot: dict[str, Any]) -> bool:
    """Does the snapshot say that the run is held? Not if it has ended, is driven or is to be cancelled."""
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
    """The seconds from one to the other; two clocks may disagree on which of them came first."""
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
    """A time in seconds; snapshots that others wrote may say anything."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None

"""What a list shows of a run: its snapshot without what is long."""

from typing import Any, Final

import msgspec

SUMMARY_BYTES: Final = 16 * 1024
"""The index keeps no more than this of a run."""

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

_OF_HOLD: Final = ("since", "seen_by")
_MOST_NEEDS: Final = 5
_OF_WAITING: Final = ("node_id", "task", "wait_key", "prompt", "deadline")


def summary_of(run_id: str, snapshot: dict[str, Any]) -> bytes:
    """The summary as JSON. If it is too large even so, first the tasks go, then all but short values we know."""
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

"""Decodes stored snapshots, which any program may have written, and fits our own into their largest size."""

import logging
from collections.abc import Collection
from typing import Any, ClassVar, Final

import msgspec

from pyoco_server.app.ports import LOG_STATUS, StoredSnapshot
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import PyocoServerError
from pyoco_server.logs import log_error
from pyoco_server.texts import shortened

_MOST_SEC: Final = 1e15


class SnapshotUnreadableError(PyocoServerError):
    """Something is stored for the run, but it is no snapshot."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0106"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0106"


def json_object(body: bytes) -> JsonObject | None:
    """Decode a JSON object; None if the bytes are not one."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def number(value: object) -> float | None:
    """Return the value as a number of seconds; None if it is not a number, or one that no clock can show."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _MOST_SEC else None


def readable(stored: StoredSnapshot) -> JsonObject:
    """Return the fields of a stored snapshot; SnapshotUnreadableError if it is not a JSON object."""
    found = json_object(stored.body)
    if found is None:
        raise SnapshotUnreadableError(
            f"what is stored as the snapshot of '{stored.run_id}' is not a JSON object; "
            "the program that wrote it must write it again, or remove it"
        )
    return found


_log = logging.getLogger(__name__)
_OUTPUT: Final = "output"
_DETAILS: Final = (_OUTPUT, "error", "message")

LONGEST_TEXT: Final = 2_000
"""How much of a text is kept when everything else has been left out."""


def fitted(snapshot: JsonObject, max_bytes: int) -> bytes:
    """Encode a snapshot as JSON of at most ``max_bytes``, as far as that is possible, with its status twice.

    The largest outputs are left out first, then all details of task records, then all records;
    ``task_records_truncated`` says so. A snapshot that is still too large is logged, and written without its parameters
    and prompts and with short texts. With very many tasks even that can be too large: a snapshot that is too large is
    better than one that is out of date.
    """
    snapshot = {**snapshot, LOG_STATUS: snapshot["status"]}
    body = msgspec.json.encode(snapshot)
    if len(body) <= max_bytes:
        return body
    records: JsonObject = snapshot["task_records"]
    for kept in (
        _without_largest(records, len(body) - max_bytes),
        {name: _without(record, _DETAILS) for name, record in records.items()},
        {},
    ):
        body = msgspec.json.encode({**snapshot, "task_records": kept, "task_records_truncated": True})
        if len(body) <= max_bytes:
            return body
    log_error(
        _log,
        "ERR-PYOCO-0010",
        action="snapshot_too_large",
        reason=f"it has {len(body)} bytes, {max_bytes} are allowed; smaller parameters would help, too",
        run_id=snapshot["run_id"],
    )
    small = {**snapshot, "task_records": {}, "task_records_truncated": True, "params": {}, "params_truncated": True}
    small["waiting"] = [{**entry, "prompt": None} for entry in snapshot["waiting"]]
    texts = ("error", "cancel_reason")
    small |= {name: snapshot[name] and shortened(snapshot[name], LONGEST_TEXT) for name in texts}
    return msgspec.json.encode(small)


def _without_largest(records: JsonObject, excess: int) -> JsonObject:
    """Return the records without their largest outputs, so many that ``excess`` bytes are saved."""
    sizes = {name: len(msgspec.json.encode(record[_OUTPUT])) for name, record in records.items() if _OUTPUT in record}
    kept = dict(records)
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if excess <= 0:
            break
        kept[name] = _without(records[name], (_OUTPUT,))
        excess -= sizes[name]
    return kept


def _without(record: JsonObject, left_out: Collection[str]) -> JsonObject:
    return {name: value for name, value in record.items() if name not in left_out}

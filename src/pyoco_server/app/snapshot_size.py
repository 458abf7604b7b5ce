"""The stored form of a snapshot, which has a largest size.

What is least needed goes first; what tells how the run stands never goes.
"""

import logging
from collections.abc import Collection
from typing import Final

import msgspec

from pyoco_server.app.ports import LOG_STATUS
from pyoco_server.core.wire import JsonObject
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)
_OUTPUT: Final = "output"
_DETAILS: Final = (_OUTPUT, "error", "message")

LONGEST_TEXT: Final = 2_000
"""How much of a text is kept when nothing else is left to leave out."""


def fitted(snapshot: JsonObject, max_bytes: int) -> bytes:
    """The snapshot as it is stored: JSON of at most ``max_bytes``, as far as that is possible, with its status twice.

    The largest outputs go first, then all details of task records, then the records altogether;
    ``task_records_truncated`` says so. A snapshot that is too large even so is told of in the log and written without
    its parameters and prompts and with short texts; for the number of its tasks it may still be too large: better that
    than a snapshot that is out of date.
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
    small |= {name: snapshot[name] and snapshot[name][:LONGEST_TEXT] for name in ("error", "cancel_reason")}
    return msgspec.json.encode(small)


def _without_largest(records: JsonObject, excess: int) -> JsonObject:
    """The records without as many outputs as are needed to save so many bytes, the largest first."""
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

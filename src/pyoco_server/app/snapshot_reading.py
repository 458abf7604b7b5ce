"""Reading snapshots, which anybody may have written: the bucket they lie in is open to other producers."""

from typing import Any, ClassVar, Final

import msgspec

from pyoco_server.app.ports import StoredSnapshot
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError

_MOST_SEC: Final = 1e15


class SnapshotUnreadableError(PyocoServerError):
    """Something is stored for the run, but it is no snapshot."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0106"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0106"


def json_object(body: bytes) -> JsonObject | None:
    """The JSON object these bytes are; None if they are not one."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def number(value: object) -> float | None:
    """The value as a number of seconds; None if it is not one, or one that no clock can show."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _MOST_SEC else None


def readable(stored: StoredSnapshot) -> JsonObject:
    """The fields of a snapshot somebody asked for; SnapshotUnreadableError if it is not a JSON object."""
    found = json_object(stored.body)
    if found is None:
        raise SnapshotUnreadableError(
            f"what is stored as the snapshot of '{stored.run_id}' is not a JSON object; "
            "whoever wrote it must write it again, or remove it"
        )
    return found


def tenant_of(snapshot: JsonObject) -> str | None:
    """Whose run it is, if the snapshot says so."""
    tenant_id = snapshot.get("tenant_id")
    return tenant_id if isinstance(tenant_id, str) else None

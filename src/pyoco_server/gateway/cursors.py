"""Cursors: where a walk through the runs stands, as a text clients do not look into."""

import base64
import binascii
import math

import msgspec

from pyoco_server.app.ports import Cursor
from pyoco_server.gateway.errors import ListQueryError


class _Written(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    submitted_at: float
    run_id: str
    tenant_id: str | None


def encode_cursor(cursor: Cursor, tenant_id: str | None) -> str:
    """The cursor as it is given to the client; it is good for this tenant only."""
    written = _Written(cursor.submitted_at, cursor.run_id, tenant_id)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(written)).decode().rstrip("=")


def decode_cursor(text: str, tenant_id: str | None) -> Cursor:
    """Read a cursor back; ListQueryError if it is not one of ours, or of another tenant."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        written = msgspec.msgpack.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=_Written)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise ListQueryError("cursor: not a cursor of this server; pass next_cursor as you got it") from error
    if written.tenant_id != tenant_id:
        raise ListQueryError("cursor: not a cursor of yours; begin again without one")
    if not math.isfinite(written.submitted_at):
        raise ListQueryError("cursor: not a cursor of this server; pass next_cursor as you got it")
    return Cursor(written.submitted_at, written.run_id)

"""Parameters that several routes share: ids in paths, headers, and cursors of lists.

An id that is not valid is answered like one that does not exist. A cursor is a text that clients do not interpret.
"""

import base64
import binascii
import math
from typing import Annotated, Final

import msgspec
from fastapi import Depends, Header, Path

from pyoco_server.app.ports import Cursor
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.gateway.errors import ListQueryError
from pyoco_server.identifiers import NODE_ID, REQUEST_KEY, RUN_ID

# --- Ids -------------------------------------------------------------------------------------------------------------


async def _run_id(run_id: Annotated[str, Path(description="The run's id.")]) -> str:
    """Return the id in the path; RunNotFoundError if no run can have it."""
    if not RUN_ID.fits(run_id):
        raise RunNotFoundError(run_id)
    return run_id


async def _execution_id(
    execution_id: Annotated[str, Path(description="A run's id is its execution's.")],
) -> str:
    return await _run_id(execution_id)


RunId = Annotated[str, Depends(_run_id)]
ExecutionId = Annotated[str, Depends(_execution_id)]
NodeId = Annotated[
    str, Path(min_length=1, max_length=NODE_ID.longest, description="The node's id; it may contain slashes.")
]


# --- Headers ---------------------------------------------------------------------------------------------------------

CORRELATION: Final = "X-Correlation-Id"
PRINTABLE: Final = f"^{REQUEST_KEY.pattern}$"

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=PRINTABLE,
        description="A repeated request with the same key is handled once.",
        examples=["order-4711"],
    ),
]
Correlation = Annotated[
    str | None,
    Header(
        alias=CORRELATION,
        pattern=PRINTABLE,
        description="The id of a larger operation that the request belongs to; kept in its events, and returned.",
        examples=["req-0815"],
    ),
]


# --- Cursors ---------------------------------------------------------------------------------------------------------


class _Written(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    submitted_at: float
    run_id: str
    tenant_id: str | None


def encode_cursor(cursor: Cursor, tenant_id: str | None) -> str:
    """Encode a cursor for a client; it is valid for this tenant only."""
    written = _Written(cursor.submitted_at, cursor.run_id, tenant_id)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(written)).decode().rstrip("=")


def decode_cursor(text: str, tenant_id: str | None) -> Cursor:
    """Decode a cursor; ListQueryError if this server did not encode it, or did so for another tenant."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        written = msgspec.msgpack.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=_Written)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise ListQueryError("cursor: not a cursor of this server; pass next_cursor unchanged") from error
    if written.tenant_id != tenant_id:
        raise ListQueryError("cursor: it belongs to another tenant; start again without one")
    if not math.isfinite(written.submitted_at):
        raise ListQueryError("cursor: not a cursor of this server; pass next_cursor unchanged")
    return Cursor(written.submitted_at, written.run_id)

"""What a task returned, as the log keeps it.

A value that is JSON is kept as it is; a large one is kept beside the log, which refers to it. One that is not JSON is
kept for the running process only: the log has its text, and whoever must go on from the log alone has to run the task
again.
"""

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import OutputStore
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError

_log = logging.getLogger(__name__)

VALUE: Final = "value"
TEXT_ONLY: Final = "repr"
STORED: Final = "stored"
LONGEST_TEXT: Final = 2_000
INLINE_MAX_BYTES: Final = 65_536


class _Stored(msgspec.Struct, frozen=True):
    """What the log says of an output that is kept beside it."""

    name: str
    sha256: str


class Outputs:
    """Writes outputs and reads them back."""

    def __init__(self, store: OutputStore, *, inline_max_bytes: int = INLINE_MAX_BYTES) -> None:
        self._store = store
        self._inline_max_bytes = inline_max_bytes

    async def written(self, new_name: Callable[[], str], value: Any) -> JsonObject:  # noqa: ANN401 whatever a task returned
        """The object NODE_SUCCEEDED carries; a large value is stored under a new name."""
        copied = _copied(value)
        if copied is None:
            return {TEXT_ONLY: _shown(value)}
        encoded, copy = copied
        if len(encoded) <= self._inline_max_bytes:
            return {VALUE: copy}
        name = new_name()
        await self._store.put(name, encoded)
        return {STORED: {"name": name, "bytes": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}}

    async def forget(self, output: JsonObject) -> None:
        """Remove what was stored for an output that did not come into the log."""
        if STORED in output:
            await self._store.delete(output[STORED]["name"])

    async def read(self, output: JsonObject | None) -> tuple[bool, Any]:
        """Whether the value can be had, and the value."""
        if output is None:
            return False, None
        if VALUE in output:
            return True, fresh(output[VALUE])
        said = _stored(output)
        if said is None:
            return False, None
        try:
            found = await self._store.get(said.name)
        except InvalidInputError:  # a name nothing can be kept under
            found = None
        if found is None or hashlib.sha256(found).hexdigest() != said.sha256:
            _log.warning("stored output '%s' is missing or damaged", said.name, extra={"action": "output_lost"})
            return False, None
        return True, msgspec.json.decode(found)


def _stored(output: JsonObject) -> _Stored | None:
    """Where an output is kept, if the log says so; a node may have been ended from outside, with any output."""
    try:
        return msgspec.convert(output.get(STORED), _Stored)
    except msgspec.ValidationError:
        return None


def to_output(value: Any) -> JsonObject:  # noqa: ANN401 whatever a task returned
    """The same for a value that is never large."""
    copied = _copied(value)
    return {TEXT_ONLY: _shown(value)} if copied is None else {VALUE: copied[1]}


def fresh(value: Any) -> Any:  # noqa: ANN401 whatever JSON can say
    """A copy of a value the log holds, for tasks to do with as they like."""
    return msgspec.json.decode(msgspec.json.encode(value))


def writable(text: str) -> str:
    """The text, with what UTF-8 cannot say spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shown(value: Any) -> str:  # noqa: ANN401 whatever a task returned
    try:
        return writable(repr(value)[:LONGEST_TEXT])
    except Exception:  # noqa: BLE001 a value that cannot be shown is still a value
        return f"a {type(value).__name__} that cannot be shown"


def _copied(value: Any) -> tuple[bytes, Any] | None:  # noqa: ANN401 whatever a task returned
    """The value as JSON, and what that reads back as; None unless that is equal and of the same type.

    What is kept is the copy: whoever returned the value may go on changing it, and the log must not change with it.
    """
    try:
        encoded = msgspec.json.encode(value)
        copy = msgspec.json.decode(encoded)
        return (encoded, copy) if _same(value, copy) else None
    except (TypeError, ValueError, RuntimeError, msgspec.MsgspecError):  # nested too deep, or changed while we look
        return None


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401
    if one is None or one is True or one is False:
        return one is other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(_same, one, other)) and all(map(_same, one.values(), other.values()))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)

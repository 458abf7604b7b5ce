"""What a task returned, as the log keeps it.

A value that is JSON is kept as it is. One that is not is kept for the running process only: the log has its text, and
whoever must go on from the log alone has to run the task again.
"""

from typing import Any, Final

import msgspec

from pyoco_server.core.wire import JsonObject

VALUE: Final = "value"
TEXT_ONLY: Final = "repr"
LONGEST_TEXT: Final = 2_000


def to_output(value: Any) -> JsonObject:  # noqa: ANN401 whatever a task returned
    """The object NODE_SUCCEEDED carries."""
    if _survives(value):
        return {VALUE: value}
    return {TEXT_ONLY: _shown(value)}


def writable(text: str) -> str:
    """The text, with what UTF-8 cannot say spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shown(value: Any) -> str:  # noqa: ANN401 whatever a task returned
    try:
        return writable(repr(value)[:LONGEST_TEXT])
    except Exception:  # noqa: BLE001 a value that cannot be shown is still a value
        return f"a {type(value).__name__} that cannot be shown"


def is_complete(output: JsonObject | None) -> bool:
    """Can the value be had from the log?"""
    return output is not None and VALUE in output


def from_output(output: JsonObject) -> Any:  # noqa: ANN401 whatever the task returned
    """The value an output holds."""
    return output[VALUE]


def _survives(value: Any) -> bool:  # noqa: ANN401
    """Does the value come back from JSON equal and of the same type? A tuple or a key that is a number does not."""
    try:
        read_back = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return _same(value, read_back)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(item, other[key]) for key, item in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)

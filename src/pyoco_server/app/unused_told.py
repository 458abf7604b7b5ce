"""How parameters that nothing takes are told, in the log and to people."""

from collections.abc import Mapping
from typing import Any, Final

UNUSED: Final = "unusedParams"
"""Under this name NODE_STARTED tells them: each with what may have been meant, or null."""

MOST: Final = 50

Unused = dict[str, str | None]


def read_unused(said: object) -> Unused | None:
    """What an event says of them; None if it says nothing, or something else: anybody may give a node extra fields."""
    if not isinstance(said, Mapping) or len(said) > MOST:
        return None
    if all(isinstance(name, str) and (near is None or isinstance(near, str)) for name, near in said.items()):
        return dict(said)
    return None


def told_of(unused: Mapping[str, Any]) -> list[str]:
    """A sentence for each."""
    return [
        f"nothing in the flow takes the parameter '{name}'{f'; did you mean {near!r}?' if near else ''}"
        for name, near in unused.items()
    ]

"""Which wheels a run was executed with: events name them where they change, the snapshot lists all of them.

The NODE_STARTED of the first node that a worker starts lists the wheels in use there, unless the log named the same
wheels last. Most workers have none; then the field is left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.identifiers import WHEEL_NAME

WHEELS: Final = "wheels"
"""The field of the event: the files' names, each with the beginning of its SHA-256."""

MOST: Final = 50
_DIGITS: Final = 12

_DIGEST: Final = re.compile(r"[0-9a-f]{0,12}", re.ASCII)


def wheels_used(wheels: Sequence[Wheel]) -> dict[str, str]:
    """Return the wheels as the log names them, the first 50 by name."""
    found = {wheel.name: (wheel.sha256_hex or "")[:_DIGITS] for wheel in wheels}
    return {name: found[name] for name in sorted(found)[:MOST]}


def read_wheels(said: object) -> dict[str, str] | None:
    """Return the wheels that an event names; None if it has none, or another value: callers may add any fields."""
    if not isinstance(said, Mapping) or len(said) > MOST:
        return None
    if all(WHEEL_NAME.fits(name) and _is_digest(digest) for name, digest in said.items()):
        return dict(said)
    return None


def with_more(known: Mapping[str, str], said: object) -> dict[str, str]:
    """Return the known wheels with those that an event adds, the last 50."""
    return dict([*{**known, **(read_wheels(said) or {})}.items()][-MOST:])


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None

"""Which wheels a run was executed with: the log says so where it changes, the snapshot tells all of them.

Where a worker begins its first node of a run, NODE_STARTED lists the wheels in use there, unless they are those the log
named last. Most workers have none, and then nothing is said.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyoco_server.app.ports.wheels import Wheel

WHEELS: Final = "wheels"
"""Under this name: the files' names, each with the beginning of its SHA-256."""

MOST: Final = 50
_DIGITS: Final = 12
_NAME: Final = re.compile(r"[^/\s]{1,255}\.whl", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{0,12}", re.ASCII)


def wheels_used(wheels: Sequence[Wheel]) -> dict[str, str]:
    """These, as the log names them; of very many, the first by name."""
    found = {wheel.name: (wheel.sha256_hex or "")[:_DIGITS] for wheel in wheels}
    return {name: found[name] for name in sorted(found)[:MOST]}


def read_wheels(said: object) -> dict[str, str] | None:
    """What an event says of wheels; None if nothing, or something else: anybody may give a node extra fields."""
    if not isinstance(said, Mapping) or len(said) > MOST:
        return None
    if all(_is(_NAME, name) and _is(_DIGEST, digest) for name, digest in said.items()):
        return dict(said)
    return None


def with_more(known: Mapping[str, str], said: object) -> dict[str, str]:
    """Those known, and what an event says besides; of very many, the last."""
    return dict([*{**known, **(read_wheels(said) or {})}.items()][-MOST:])


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None

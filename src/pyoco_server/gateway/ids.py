"""Ids in paths and bodies: what can be one, and what cannot."""

import re
from typing import Final

from pyoco_server.errors import InvalidInputError

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


def is_id(text: str) -> bool:
    """Can there be anything by this id?"""
    return _ID.fullmatch(text) is not None


def checked_id(text: str, field: str) -> str:
    """The id; InvalidInputError if it cannot be one."""
    if not is_id(text):
        raise InvalidInputError(f"{field}: 1 to 128 letters, digits, '_' and '-', not {text!r:.80}")
    return text

"""What a key looks like, and what of it is kept.

A key is its public id and 256 random bits. Nobody can guess those, so a fast keyed hash is all it takes to keep them: a
slow one would only make every request dear, and the gateway easy to keep busy.
"""

import hashlib
import hmac
import re
from enum import StrEnum
from typing import Final

from pyoco_server.app import keys_051
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import TENANT

SECRET_BYTES: Final = 32
ID_BYTES: Final = 8

_KEY: Final = re.compile(rb"pyoco_(k[0-9a-f]{16})_[0-9a-f]{64}")
_KEY_ID: Final = re.compile(r"k[0-9a-f]{16}")
LONGEST_NAME: Final = 100


class Scope(StrEnum):
    """What a key may be used for."""

    RUNS = "runs"
    """Runs, executions and graphs of one's own tenant."""
    OPERATE = "operate"
    """Workers, metrics, dead letters, the archive."""
    WHEELS = "wheels"
    """Wheels: whoever uploads one decides what code the workers run."""


def key_text(api_key_id: str, secret: bytes) -> str:
    """The key as its holder gets it. The beginning tells tools that look for leaked secrets what it is."""
    return f"pyoco_{api_key_id}_{secret.hex()}"


def new_key_id(chance: bytes) -> str:
    """A public id."""
    return f"k{chance.hex()}"


def key_id_of(presented: bytes) -> str | None:
    """The public id in what is presented as a key, also one of 0.5.1; None if it cannot be a key."""
    found = _KEY.fullmatch(presented)
    return found[1].decode() if found else keys_051.key_id_in(presented)


def fingerprint(presented: bytes, pepper: bytes) -> str:
    """What a key is recognised by."""
    return hmac.digest(pepper, presented, hashlib.sha256).hex()


def pepper_mark(pepper: bytes) -> str:
    """Tells one pepper from another without telling the pepper."""
    return hmac.digest(pepper, b"pyoco-server pepper", hashlib.sha256).hex()[:8]


def checked_tenant(text: str) -> str:
    """The name of a tenant; InvalidInputError if it cannot be one.

    No two separators in a row: ``<tenant>--`` can then begin no name of another tenant's.
    """
    return TENANT.checked(text, "tenant")


def checked_name(text: str) -> str:
    """What a key is called, for people; InvalidInputError if it could drive a terminal."""
    if not text.strip() or not text.isprintable() or len(text) > LONGEST_NAME:
        raise InvalidInputError(f"name: 1 to {LONGEST_NAME} printable characters, not {text!r:.80}")
    return text


def is_key_id(text: str) -> bool:
    """Whether this is how the public id of a key looks, ours or one that release 0.5.1 issued."""
    return _KEY_ID.fullmatch(text) is not None or keys_051.is_key_id(text)


def checked_key_id(text: str) -> str:
    """The id of a key; InvalidInputError if it cannot be one. What was given is not shown: it may be a whole key."""
    if not is_key_id(text):
        raise InvalidInputError("api_key_id: 'k' and 16 hexadecimal digits, as 'keys list' shows them")
    return text

"""The format of API keys, and the fingerprint that is stored of one.

A key is its public id and 256 random bits. These cannot be guessed, so a fast keyed hash is enough to store: a slow one
would only make every request expensive, and the gateway easy to overload.
"""

import hashlib
import hmac
import re
from enum import StrEnum
from typing import Final

from pyoco_server.app.api_keys import keys_051
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import API_KEY_ID, API_KEY_ID_051, TENANT

SECRET_BYTES: Final = 32
ID_BYTES: Final = 8

_KEY: Final = re.compile(f"pyoco_({API_KEY_ID.pattern})_[0-9a-f]{{64}}".encode())
LONGEST_NAME: Final = 100


class KeyScope(StrEnum):
    """What a key permits."""

    RUNS = "runs"
    """Runs, executions and graphs of the key's tenant."""
    OPERATE = "operate"
    """Workers, metrics, dead letters, the archive."""
    WHEELS = "wheels"
    """Wheels. An uploaded wheel is code that the workers run."""
    YAML = "yaml"
    """Runs whose flow.yaml is in the request: it names which functions the workers call."""


def key_text(api_key_id: str, secret: bytes) -> str:
    """Return the key's text. By its prefix, tools that search for leaked secrets recognise it."""
    return f"pyoco_{api_key_id}_{secret.hex()}"


def new_key_id(chance: bytes) -> str:
    """Return a public id made of random bytes."""
    return f"k{chance.hex()}"


def key_id_of(presented: bytes) -> str | None:
    """Return the public id in a presented key, also in one of 0.5.1; None if it cannot be a key."""
    found = _KEY.fullmatch(presented)
    return found[1].decode() if found else keys_051.key_id_in(presented)


def fingerprint(presented: bytes, pepper: bytes) -> str:
    """Return the keyed hash that is stored of a key."""
    return hmac.digest(pepper, presented, hashlib.sha256).hex()


SEALED_ONLY: Final = "sealed:"
"""Begins the fingerprint of a key whose record was never without a seal."""


def sealed_fingerprint(shown: str, pepper: bytes) -> str:
    """Return the keyed hash that is stored in a sealed record: from it, ``fingerprint`` cannot be computed.

    So a record of this version cannot be turned into one of an earlier version, which had no seal.
    """
    return SEALED_ONLY + hmac.digest(pepper, b"sealed " + shown.encode(), hashlib.sha256).hex()


def pepper_mark(pepper: bytes) -> str:
    """Return a mark that differs between peppers and does not reveal the pepper."""
    return hmac.digest(pepper, b"pyoco-server pepper", hashlib.sha256).hex()[:8]


def checked_tenant(text: str) -> str:
    """Return the name of a tenant; InvalidInputError if it cannot be one.

    It has no two separators in a row, so that ``<tenant>--`` cannot begin the name of another tenant.
    """
    return TENANT.checked(text, "tenant")


def checked_name(text: str) -> str:
    """Return the display name of a key; InvalidInputError if it has characters that could control a terminal."""
    if not text.strip() or not text.isprintable() or len(text) > LONGEST_NAME:
        raise InvalidInputError(f"name: 1 to {LONGEST_NAME} printable characters, not {text!r:.80}")
    return text


def is_key_id(text: str) -> bool:
    """Return whether the text can be the public id of a key, also of one that release 0.5.1 issued."""
    return API_KEY_ID.fits(text) or API_KEY_ID_051.fits(text)


def checked_key_id(text: str) -> str:
    """Return the id of a key; InvalidInputError if it cannot be one, without the text: it may be a whole key."""
    if not is_key_id(text):
        raise InvalidInputError("api_key_id: 'k' and 16 hexadecimal digits, as 'keys list' shows them")
    return text

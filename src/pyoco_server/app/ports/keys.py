"""API keys as they are stored: never the key itself, only what verifies it."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

SCOPES_SINCE: Final = 1
"""What ``StoredKey.scopes_since`` is in keys that are issued now."""


class RetiredSecret(msgspec.Struct, frozen=True):
    """A secret that was replaced, and until when it is still accepted."""

    hmac: str
    until: float


class SlowHash(msgspec.Struct, frozen=True, kw_only=True):
    """What verifies a key of 0.5.1."""

    kdf: str
    iterations: int
    salt_b64: str
    hash_b64: str


class StoredKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key without its secret. Times are Unix seconds."""

    api_key_id: str
    """Public: it is in logs and in the runs that were submitted with the key."""
    tenant_id: str | None
    """None: an operator's key, bound to no tenant."""
    scopes: tuple[str, ...]
    hmac: str
    """HMAC-SHA256 of the key under the pepper, in hexadecimal."""
    created_at: float
    pepper_mark: str = ""
    """Names the pepper, so that a key of another pepper is recognised as that, and not as a wrong key."""
    name: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None
    retired: RetiredSecret | None = None
    slow: SlowHash | None = None
    """What verifies a key that 0.5.1 issued, instead of ``hmac``, which is empty then."""
    scopes_since: int = 0
    """0: ``scopes`` was chosen before there was the scope `yaml`, which `runs` opened then; 1: afterwards."""
    in_closed_bucket: bool = False
    """Whether it was sealed when records without a seal did not count any more."""
    seal: str | None = None
    """HMAC under the pepper over all other fields; None in a record of an earlier version."""
    defect: str | None = None
    """Why the key is never accepted and must be issued again; None for all keys but some of 0.5.1."""


def with_later_scopes(key: StoredKey) -> StoredKey:
    """Return a stored key with the scopes that it had under another name when it was issued."""
    if key.scopes_since >= SCOPES_SINCE:
        return key
    scopes = (*key.scopes, "yaml") if "runs" in key.scopes else key.scopes
    return msgspec.structs.replace(key, scopes=tuple(dict.fromkeys(scopes)), scopes_since=SCOPES_SINCE)


class KeyRecords(NamedTuple):
    """All keys, and the version they were read at."""

    version: str
    keys: Sequence[StoredKey]
    marks: frozenset[str] = frozenset()
    """The marks that close the bucket to records without a seal, one for each pepper: anyone may have written them."""


class KeyStore(Protocol):
    """Stores API keys. ``name`` is that of the place: another place has another one."""

    name: str

    async def add(self, key: StoredKey) -> bool:
        """Store a new key; False if its id is taken."""
        ...

    async def update(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey | None:
        """Store what ``change`` makes of a key, and return it; None if there is no such key.

        ``change`` is called again whenever another process wrote first, so that no change is lost.
        """
        ...

    async def put_mark(self, mark: str) -> None:
        """Store a mark that closes the bucket to records without a seal."""
        ...

    async def read(self, known: KeyRecords | None = None) -> KeyRecords:
        """Return all keys; ``known`` itself if nothing has changed since. UnavailableError if they cannot be read.

        The result is never older than a change that returned before this call.
        """
        ...

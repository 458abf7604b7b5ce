"""API keys as they are stored: never the key itself, only what it can be recognised by."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec


class RetiredSecret(msgspec.Struct, frozen=True):
    """A secret that was replaced, and until when it still counts."""

    hmac: str
    until: float


class SlowHash(msgspec.Struct, frozen=True, kw_only=True):
    """What a key of 0.5.1 is verified by."""

    kdf: str
    iterations: int
    salt_b64: str
    hash_b64: str


class StoredKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a key. Times are Unix seconds."""

    api_key_id: str
    """Public: it stands in logs and in the runs its holder submitted."""
    tenant_id: str | None
    """None: bound to no tenant, for those who look after the platform."""
    scopes: tuple[str, ...]
    hmac: str
    """HMAC-SHA256 of the key under the pepper, in hexadecimal."""
    created_at: float
    pepper_mark: str = ""
    """Tells one pepper from another, so that a key made under another one can be told from a wrong one."""
    name: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None
    retired: RetiredSecret | None = None
    slow: SlowHash | None = None
    """Of a key that 0.5.1 issued: what it is verified by, in place of ``hmac``, which is empty then."""
    defect: str | None = None
    """Why the key lets nobody in and must be issued again; None for all keys but some of 0.5.1."""


class KeyRecords(NamedTuple):
    """All keys, and the version they were read at."""

    version: str
    keys: Sequence[StoredKey]


class KeyStore(Protocol):
    """Where keys are kept."""

    async def add(self, key: StoredKey) -> bool:
        """Keep a new key; False if its id is taken."""
        ...

    async def update(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey | None:
        """Store what ``change`` makes of a key, and return it; None if there is no such key.

        Asked again whenever somebody else was quicker, so that no change is lost.
        """
        ...

    async def read(self, known: KeyRecords | None = None) -> KeyRecords:
        """All keys as of now; ``known`` itself if nothing has changed since. UnavailableError if nobody can say.

        Never older than any change that was answered before this was asked.
        """
        ...

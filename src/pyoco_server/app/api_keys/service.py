"""Use cases of API keys: create, list, revoke, rotate."""

import hmac
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.api_keys.errors import KeyNotFoundError
from pyoco_server.app.api_keys.format import (
    ID_BYTES,
    SECRET_BYTES,
    KeyScope,
    checked_key_id,
    checked_name,
    checked_tenant,
    fingerprint,
    key_text,
    new_key_id,
    pepper_mark,
)
from pyoco_server.app.ports import Clock
from pyoco_server.app.ports.keys import SCOPES_SINCE, KeyStore, RetiredSecret, StoredKey
from pyoco_server.errors import InvalidInputError

Chance = Callable[[int], bytes]
"""Returns so many bytes that cannot be guessed."""

DEFAULT_SCOPES: Final = tuple(KeyScope)
"""A key permits every route unless scopes are named."""


class IssuedKey(NamedTuple):
    """A key with its text, which exists only when it is issued."""

    text: str
    stored: StoredKey


class KeyService:
    """Creates, lists, revokes and rotates keys."""

    def __init__(self, store: KeyStore, clock: Clock, chance: Chance, *, pepper: bytes) -> None:
        self._store = store
        self._clock = clock
        self._chance = chance
        self._pepper = pepper

    async def create(
        self,
        tenant_id: str | None,
        *,
        scopes: Collection[KeyScope] = DEFAULT_SCOPES,
        name: str | None = None,
        expires_at: float | None = None,
    ) -> IssuedKey:
        """Issue a key; InvalidInputError if it could never be used."""
        now = self._clock.now().timestamp()
        if expires_at is not None and expires_at <= now:
            raise InvalidInputError("expires: this is in the past")
        while True:
            key_id = new_key_id(self._chance(ID_BYTES))
            text = key_text(key_id, self._chance(SECRET_BYTES))
            stored = StoredKey(
                api_key_id=key_id,
                tenant_id=checked_tenant(tenant_id) if tenant_id is not None else None,
                scopes=tuple(scope.value for scope in KeyScope if scope in scopes),
                hmac=fingerprint(text.encode(), self._pepper),
                pepper_mark=pepper_mark(self._pepper),
                created_at=now,
                name=checked_name(name) if name is not None else None,
                expires_at=expires_at,
                scopes_since=SCOPES_SINCE,
            )
            if await self._store.add(stored):
                return IssuedKey(text, stored)

    async def all(self) -> Sequence[StoredKey]:
        """Return all keys, the newest first."""
        return sorted((await self._store.read()).keys, key=lambda key: key.created_at, reverse=True)

    async def revoke(self, api_key_id: str) -> StoredKey:
        """Revoke a key for good; a revoked key keeps the time of its revocation."""
        now = self._clock.now().timestamp()

        def revoked(key: StoredKey) -> StoredKey:
            return key if key.revoked_at is not None else msgspec.structs.replace(key, revoked_at=now, retired=None)

        return await self._change(api_key_id, revoked)

    async def rotate(self, api_key_id: str, *, keep_old_sec: float = 0.0) -> IssuedKey:
        """Give a key a new secret; the old one is accepted for ``keep_old_sec``. InvalidInputError if it is revoked."""
        now, secret = self._clock.now().timestamp(), self._chance(SECRET_BYTES)
        text = key_text(checked_key_id(api_key_id), secret)

        def rotated(key: StoredKey) -> StoredKey:
            if key.slow is not None:
                raise InvalidInputError(
                    f"'{api_key_id}' was issued by 0.5.1 and cannot get a new secret; create a new key, then revoke it"
                )
            if key.revoked_at is not None:
                raise InvalidInputError(f"'{api_key_id}' is revoked; create a new key")
            return msgspec.structs.replace(
                key,
                hmac=fingerprint(text.encode(), self._pepper),
                pepper_mark=pepper_mark(self._pepper),
                rotated_at=now,
                retired=RetiredSecret(key.hmac, now + keep_old_sec) if keep_old_sec > 0 else None,
            )

        return IssuedKey(text, await self._change(api_key_id, rotated))

    def state_of(self, key: StoredKey) -> str:
        """Return the state of a key in a word or two, for lists."""
        if key.revoked_at is not None:
            return "revoked"
        if key.expires_at is not None and key.expires_at <= self._clock.now().timestamp():
            return "expired"
        if key.slow is not None:
            return "reissue" if key.defect is not None else "active"
        same = hmac.compare_digest(key.pepper_mark, pepper_mark(self._pepper))
        return "active" if same else "other pepper"

    async def _change(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey:
        changed = await self._store.update(checked_key_id(api_key_id), change)
        if changed is None:
            raise KeyNotFoundError(f"there is no key '{api_key_id}'")
        return changed

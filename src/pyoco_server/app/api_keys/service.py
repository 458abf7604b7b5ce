"""Use cases of API keys: create, list, revoke, rotate, and seal the records of earlier versions."""

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
    sealed_fingerprint,
)
from pyoco_server.app.api_keys.seals import ClosedBuckets, KeySeals, NothingRemembered
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
    """Creates, lists, revokes and rotates keys, and seals records."""

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        chance: Chance,
        *,
        pepper: bytes,
        closed: ClosedBuckets = NothingRemembered(),  # noqa: B008 (it has no state)
    ) -> None:
        self._store = store
        self._seals = KeySeals(pepper, store.name, closed)
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
        await self._close_if_nothing_is_unsealed(await self.all())
        while True:
            key_id = new_key_id(self._chance(ID_BYTES))
            text = key_text(key_id, self._chance(SECRET_BYTES))
            stored = StoredKey(
                api_key_id=key_id,
                tenant_id=checked_tenant(tenant_id) if tenant_id is not None else None,
                scopes=tuple(scope.value for scope in KeyScope if scope in scopes),
                hmac=self._fingerprint(text),
                pepper_mark=self._seals.pepper_mark,
                created_at=now,
                name=checked_name(name) if name is not None else None,
                expires_at=expires_at,
                scopes_since=SCOPES_SINCE,
            )
            stored = self._seals.sealed(stored)
            if await self._store.add(stored):
                return IssuedKey(text, stored)

    async def all(self) -> Sequence[StoredKey]:
        """Return all keys, the newest first."""
        records = await self._store.read()
        self._seals.note(records)
        return sorted(records.keys, key=lambda key: key.created_at, reverse=True)

    @property
    def has_pepper(self) -> bool:
        """Whether seals can be made that other programs cannot make."""
        return bool(self._pepper)

    async def seal_once(self) -> Sequence[StoredKey]:
        """Seal the records of earlier versions, close the bucket, and return them; an empty or closed one stays."""
        keys = await self.all()
        if self._seals.is_closed or not keys:
            return ()
        sealed = [await self.seal(key.api_key_id) for key in keys if self._seals.counts_as_unsealed(key)]
        await self._close_if_nothing_is_unsealed(await self.all())
        return sealed

    async def seal(self, api_key_id: str) -> StoredKey:
        """Seal a record as it is: the operator vouches for it. A revoked key stays as it is."""
        return await self._change(api_key_id, lambda key: key)

    async def _close_if_nothing_is_unsealed(self, keys: Sequence[StoredKey]) -> None:
        if self._seals.is_closed or any(map(self._seals.counts_as_unsealed, keys)):
            return
        await self._store.put_mark(self._seals.mark)
        self._seals.note(await self._store.read())

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
            problem = self._seals.problem(key)
            if problem is not None:
                raise InvalidInputError(f"'{api_key_id}' does not count ({problem}); create a new key, then revoke it")
            return msgspec.structs.replace(
                key,
                hmac=self._fingerprint(text),
                pepper_mark=self._seals.pepper_mark,
                rotated_at=now,
                retired=RetiredSecret(key.hmac, now + keep_old_sec) if keep_old_sec > 0 else None,
            )

        await self.all()  # what counts depends on the whole bucket
        return IssuedKey(text, await self._change(api_key_id, rotated))

    def state_of(self, key: StoredKey) -> str:
        """Return the state of a key in a word or two, for lists."""
        if key.revoked_at is not None:
            return "revoked"
        if key.expires_at is not None and key.expires_at <= self._clock.now().timestamp():
            return "expired"
        if key.slow is not None:
            return "reissue" if key.defect is not None else self._active_or_refused(key)
        return "other pepper" if self._seals.is_of_another_pepper(key) else self._active_or_refused(key)

    def problem_of(self, key: StoredKey) -> str | None:
        """Return why a record does not count; None if it does."""
        return self._seals.problem(key)

    def _active_or_refused(self, key: StoredKey) -> str:
        return "active" if self._seals.problem(key) is None else "refused"

    def _fingerprint(self, text: str) -> str:
        return sealed_fingerprint(fingerprint(text.encode(), self._pepper), self._pepper)

    async def _change(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey:
        def sealed(key: StoredKey) -> StoredKey:
            changed = change(key)
            return self._seals.sealed(changed) if changed != key or key.revoked_at is None else key

        changed = await self._store.update(checked_key_id(api_key_id), sealed)
        if changed is None:
            raise KeyNotFoundError(f"there is no key '{api_key_id}'")
        return changed

"""Recognises API keys with a copy of all keys in memory, which is at most a quarter of a second old.

No request makes the store look up its key. So an unknown id and a wrong secret cost the same, and a client without a
key cannot load the store. Before a key is refused, all keys are read again, once for all requests that wait for it: a
key is accepted from the moment it was issued. While the store does not answer, no key is accepted.
"""

import asyncio
import hmac
import logging
import math
from typing import Final

from pyoco_server.app.api_keys.errors import ApiKeyRefusedError
from pyoco_server.app.api_keys.format import SEALED_ONLY, fingerprint, key_id_of, sealed_fingerprint
from pyoco_server.app.api_keys.keys_051 import SlowHashes
from pyoco_server.app.api_keys.seals import ClosedBuckets, KeySeals, NothingRemembered
from pyoco_server.app.ports import Clock, UnavailableError
from pyoco_server.app.ports.keys import KeyRecords, KeyStore, StoredKey
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

FRESH_SEC: Final = 0.25
"""Greatest age of the copy when a key is accepted: a revoked key is accepted for so long at most."""

_REFUSED: Final = "the API key is not valid"


class KeyCache:
    """Recognises presented keys."""

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        *,
        pepper: bytes,
        fresh_sec: float = FRESH_SEC,
        closed: ClosedBuckets = NothingRemembered(),  # noqa: B008 (it has no state)
    ) -> None:
        self._store = store
        self._seals = KeySeals(pepper, store.name, closed)
        self._reported = set[tuple[str, str]]()
        self._clock = clock
        self._pepper = pepper
        self._fresh_sec = fresh_sec
        self._records: KeyRecords | None = None
        self._keys: dict[str, StoredKey] = {}
        self.version = 0
        """Grows whenever the copy changes: a key may have been withdrawn."""
        self._read_at = -math.inf
        self._reading: asyncio.Task[UnavailableError | None] | None = None
        self._no_hmac = fingerprint(b"", pepper)
        self._slow = SlowHashes(pepper)

    async def recognise(self, presented: bytes) -> StoredKey:
        """Return the key that was presented; ApiKeyRefusedError if it is not accepted, UnavailableError if unknown."""
        now = asyncio.get_running_loop().time()
        await self._read_since(now - self._fresh_sec)
        found = await self._found(presented)
        if found is None or self._objection(found) is not None:
            await self._read_since(now)
            found = await self._found(presented)
        if found is None:
            raise ApiKeyRefusedError(_REFUSED)
        objection = self._objection(found)
        if objection is not None:  # the answer goes only to a client that knows the secret
            raise ApiKeyRefusedError(objection)
        return found

    async def still_counts(self, presented: bytes) -> bool:
        """Return whether a key that was recognised before is still accepted; UnavailableError if unknown."""
        await self._read_since(asyncio.get_running_loop().time() - self._fresh_sec)
        found = await self._found(presented)
        return found is not None and self._objection(found) is None

    async def _found(self, presented: bytes) -> StoredKey | None:
        """Return the key with this text; for a key of 0.5.1, its slow hash is computed the first time."""
        found = self._keys.get(key_id_of(presented) or "")
        if found is None or found.slow is None:
            return self._match(presented)
        return found if found.defect is None and await self._slow.verifies(presented, found) else None

    def _match(self, presented: bytes) -> StoredKey | None:
        """Return the key with this text, by the same steps whether there is such a key or not."""
        found = self._keys.get(key_id_of(presented) or "")
        shown = fingerprint(presented, self._pepper)
        return found if self._knows(found, (shown, sealed_fingerprint(shown, self._pepper))) else None

    def _knows(self, key: StoredKey | None, shown: tuple[str, str]) -> bool:
        """Return whether this is the fingerprint of the key's secret, or of the one before it."""
        retired = key.retired if key is not None else None
        current = _is_one_of(key.hmac if key is not None else self._no_hmac, shown)
        before = _is_one_of(retired.hmac if retired is not None else self._no_hmac, shown)
        if key is None:
            return False
        return current or (before and retired is not None and self._clock.now().timestamp() < retired.until)

    def _objection(self, key: StoredKey) -> str | None:
        if key.revoked_at is not None:
            return "the API key was revoked"
        if key.expires_at is not None and key.expires_at <= self._clock.now().timestamp():
            return "the API key has expired"
        return None

    async def _read_since(self, moment: float) -> None:
        """Make sure that the copy was read after this moment; all callers share one reading."""
        while self._read_at < moment:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(), name="API keys")
            failure = await asyncio.shield(self._reading)
            if failure is not None:
                raise UnavailableError(str(failure)) from failure

    async def _read(self) -> UnavailableError | None:
        """Read all keys and return a failure: raised, it would be lost when no caller waits any more."""
        began = asyncio.get_running_loop().time()
        try:
            records = await self._store.read(self._records)
        except UnavailableError as failure:
            return failure
        if records is not self._records:
            self._records = records
            self.version += 1
            self._seals.note(records)
            self._keys = {key.api_key_id: key for key in records.keys if self._counts(key)}
        self._read_at = began
        return None

    def _counts(self, key: StoredKey) -> bool:
        """Return whether a stored record counts; report one that does not, once."""
        problem = self._seals.problem(key)
        if problem is None:
            return True
        if (key.api_key_id, problem) not in self._reported and not self._seals.is_of_another_pepper(key):
            self._reported.add((key.api_key_id, problem))
            log_error(_log, "ERR-PYOCO-0140", action="api_key_refused", api_key_id=key.api_key_id, reason=problem)
        return False


def _is_one_of(stored: str, shown: tuple[str, str]) -> bool:
    """Compare with the fingerprint of the same kind, in a time that reveals nothing."""
    return hmac.compare_digest(stored, shown[stored.startswith(SEALED_ONLY)])

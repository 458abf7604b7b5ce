"""API keys that pyoco-server 0.5.1 issued: verified by their slow hash, once for each key and gateway.

0.5.1 keeps PBKDF2-HMAC-SHA256 with 200,000 iterations, which takes a twentieth of a second or more. So a verification
runs in a thread, one at a time, and its verdict is remembered: a verified key costs one fast hash from then on.
The records stay as 0.5.1 wrote them, so that 0.5.1 can be used again. Key ids are public; that a wrong secret takes
longer to refuse where the id exists reveals nothing that a log does not.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

from pyoco_server.app.ports.errors import UnavailableError
from pyoco_server.app.ports.keys import SlowHash, StoredKey
from pyoco_server.identifiers import API_KEY_ID_051

KDF: Final = "pbkdf2_hmac_sha256"
MOST_ITERATIONS: Final = 2_000_000
MOST_WAITING: Final = 32
"""Limit for waiting verifications: a client that sends wrong secrets must not make others wait."""
_REFUSED_KEPT: Final = 256
_KEY: Final = re.compile(rf"pyoco_({API_KEY_ID_051.pattern})\.([A-Za-z0-9_-]{{16,256}})".encode())


def key_id_in(presented: bytes) -> str | None:
    """Return the public id in a key of 0.5.1; None if it is not one."""
    found = _KEY.fullmatch(presented)
    return found[1].decode() if found else None


def defect_of(hashed: SlowHash) -> str | None:
    """Return why no key can be verified by this hash; None if one can."""
    if hashed.kdf != KDF:
        return f"its hash is '{hashed.kdf:.40}', not '{KDF}'"
    if not 0 < hashed.iterations <= MOST_ITERATIONS:
        return f"its hash takes {hashed.iterations} iterations; 1 to {MOST_ITERATIONS} are supported"
    try:
        _decoded(hashed.salt_b64), _decoded(hashed.hash_b64)
    except (binascii.Error, ValueError):
        return "its salt or hash is not base64"
    return None


class SlowHashes:
    """Verifies keys of 0.5.1 and remembers the verdicts of this process."""

    def __init__(self, pepper: bytes) -> None:
        self._pepper = pepper
        self._mark = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}
        self._refused: dict[bytes, None] = {}
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def verifies(self, presented: bytes, key: StoredKey) -> bool:
        """Return whether this is the key's text; UnavailableError if too many others wait for their verdict."""
        found = _KEY.fullmatch(presented)
        if found is None or key.slow is None:
            return False
        verdict = self._known(key, mark := self._marked(presented, key.slow))
        if verdict is not None:
            return verdict
        if self._waiting >= MOST_WAITING:
            raise UnavailableError("too many API keys of 0.5.1 are being verified; send the request again")
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                verdict = self._known(key, mark)
                if verdict is None:
                    verdict = await asyncio.to_thread(_matches, found[2] + self._pepper, key.slow)
                    self._remember(key, mark, is_right=verdict)
                return verdict
        finally:
            self._waiting -= 1

    def _marked(self, presented: bytes, hashed: SlowHash) -> bytes:
        """Return the key of a remembered verdict: it reveals no API key, and it changes with the stored record."""
        return hmac.digest(self._mark, hashed.hash_b64.encode() + b" " + presented, hashlib.sha256)

    def _known(self, key: StoredKey, mark: bytes) -> bool | None:
        if hmac.compare_digest(self._verified.get(key.api_key_id, b""), mark):
            return True
        return False if mark in self._refused else None

    def _remember(self, key: StoredKey, mark: bytes, *, is_right: bool) -> None:
        if is_right:
            self._verified[key.api_key_id] = mark
            return
        self._refused[mark] = None
        if len(self._refused) > _REFUSED_KEPT:
            del self._refused[next(iter(self._refused))]


def _matches(password: bytes, hashed: SlowHash) -> bool:
    derived = hashlib.pbkdf2_hmac("sha256", password, _decoded(hashed.salt_b64), hashed.iterations, dklen=32)
    return hmac.compare_digest(derived, _decoded(hashed.hash_b64))


def _decoded(text: str) -> bytes:
    """Decode base64 for URLs without its padding."""
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)

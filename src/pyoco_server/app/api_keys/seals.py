"""Seals of key records: an HMAC under the pepper over everything that a record says.

A program that can write the bucket, but does not have the pepper, can only take keys away: a record whose tenant,
scopes, expiry or revocation it changed is refused. Earlier versions wrote no seals. Their records count until the
bucket is *closed*: a process with the pepper then seals them, once, and writes a mark. From then on a record without a
seal is refused, so a record in the old form is worth nothing. See ADR 0029, also for what a seal cannot prevent.
"""

import hashlib
import hmac
from typing import Final, Protocol

import msgspec

from pyoco_server.app.api_keys.format import SEALED_ONLY, pepper_mark
from pyoco_server.app.ports.keys import KeyRecords, StoredKey


class ClosedBuckets(Protocol):
    """Remembers which buckets are closed, outside of NATS: a program that can write to NATS cannot open them again."""

    def knows(self, mark: str) -> bool:
        """Return whether the bucket with this mark was closed."""
        ...

    def remember(self, mark: str) -> None:
        """Remember that the bucket with this mark is closed."""
        ...


class NothingRemembered:
    """For processes that have no place to remember anything."""

    def knows(self, mark: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def remember(self, mark: str) -> None:
        """Do nothing."""


_RECORD: Final = b"pyoco-server key record\n"
_MARK: Final = b"pyoco-server closed bucket\n"


class KeySeals:
    """Seals records, and decides which of them count."""

    def __init__(self, pepper: bytes, bucket: str, closed: ClosedBuckets) -> None:
        self._pepper = pepper
        self.pepper_mark = pepper_mark(pepper)
        self.mark = hmac.digest(pepper, _MARK + bucket.encode(), hashlib.sha256).hex()
        """What closes the bucket."""
        self._closed = closed
        self.is_closed = closed.knows(self.mark)
        self._newest: dict[str, tuple[bool, float]] = {}

    def sealed(self, key: StoredKey) -> StoredKey:
        """Return the record with its seal."""
        marked = msgspec.structs.replace(key, in_closed_bucket=self.is_closed)
        return msgspec.structs.replace(marked, seal=self._seal_of(marked))

    def note(self, records: KeyRecords) -> None:
        """Learn from what is stored: whether the bucket is closed, and the newest state of each key."""
        valid = [key for key in records.keys if self._has_valid_seal(key)]
        if not self.is_closed:
            self.is_closed = self.mark in records.marks or any(key.in_closed_bucket for key in valid)
            if self.is_closed:
                self._closed.remember(self.mark)
        for key in valid:
            self._newest[key.api_key_id] = max(_state_of(key), self._newest.get(key.api_key_id, _FIRST))

    def counts_as_unsealed(self, key: StoredKey) -> bool:
        """Return whether this is a record of an earlier version that counts, and is to be sealed."""
        return key.seal is None and self.problem(key) is None and not self.is_of_another_pepper(key)

    def problem(self, key: StoredKey) -> str | None:
        """Return why a record does not count; None if it does. A revoked key needs no seal: it opens nothing."""
        if key.revoked_at is not None:
            return None
        if key.seal is None:
            is_new = self.is_closed or key.hmac.startswith(SEALED_ONLY)
            return "it is not sealed, and this bucket has no records of earlier versions any more" if is_new else None
        if not self._has_valid_seal(key):
            return "its seal does not fit: another program changed it, or the pepper is not the one it was sealed with"
        if _state_of(key) < self._newest.get(key.api_key_id, _FIRST):
            return "it is an earlier state of the record, from before a rotation or a revocation"
        return None

    def is_of_another_pepper(self, key: StoredKey) -> bool:
        """Return whether the record says that it was made with another pepper."""
        return key.slow is None and not hmac.compare_digest(key.pepper_mark, self.pepper_mark)

    def _has_valid_seal(self, key: StoredKey) -> bool:
        return key.seal is not None and hmac.compare_digest(key.seal, self._seal_of(key))

    def _seal_of(self, key: StoredKey) -> str:
        """Compute the seal over all that is stored; what is derived from a record of 0.5.1 is left out."""
        said = msgspec.structs.replace(key, seal=None, defect=None, scopes=key.scopes if key.slow is None else ())
        return hmac.digest(self._pepper, _RECORD + msgspec.json.encode(said), hashlib.sha256).hex()


_FIRST: Final = (False, 0.0)


def _state_of(key: StoredKey) -> tuple[bool, float]:
    """Return how far the life of a key has got: it only grows."""
    return key.revoked_at is not None, key.rotated_at or 0.0

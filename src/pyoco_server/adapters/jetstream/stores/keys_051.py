"""API key records as pyoco-server 0.5.1 writes them: ``api_keys.<key_id>`` in the bucket of keys.

They are read as they are and written back in the same form, so that 0.5.1 sees what was revoked here.
"""

from typing import Final

import msgspec

from pyoco_server.app.api_keys.format import KeyScope, checked_tenant
from pyoco_server.app.api_keys.keys_051 import KDF, defect_of
from pyoco_server.app.ports.keys import SlowHash, StoredKey
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import API_KEY_ID_051

PREFIX: Final = "api_keys."
_ITERATIONS: Final = 200_000


class _Record(msgspec.Struct, kw_only=True):
    key_id: str
    tenant_id: str
    kdf: str | None = None
    iterations: int | None = None
    salt_b64: str
    hash_b64: str
    created_at: float | None = None
    revoked_at: float | None = None
    in_closed_bucket: bool | msgspec.UnsetType = msgspec.UNSET
    seal: str | msgspec.UnsetType = msgspec.UNSET
    """Ours: 0.5.1 reads a record with more fields, and drops them when it writes it."""


_decoder = msgspec.json.Decoder(_Record)


def record_key(api_key_id: str) -> str | None:
    """Return the key of the record that 0.5.1 keeps for this id; None if it is no id of 0.5.1."""
    return PREFIX + api_key_id if API_KEY_ID_051.fits(api_key_id) else None


def decoded(data: bytes) -> StoredKey:
    """Return the key; msgspec.DecodeError if it is no record.

    0.5.1 asks for a key and for nothing else, so the key may do everything here. One that cannot be let in has a
    ``defect``: the record's hash cannot be verified, or the tenant's name is not possible here.
    """
    record = _decoder.decode(data)
    slow = SlowHash(
        kdf=record.kdf or KDF,
        iterations=record.iterations or _ITERATIONS,
        salt_b64=record.salt_b64,
        hash_b64=record.hash_b64,
    )
    defect = defect_of(slow)
    try:
        checked_tenant(record.tenant_id)
    except InvalidInputError as error:
        defect = defect or str(error)
    return StoredKey(
        api_key_id=record.key_id,
        tenant_id=record.tenant_id,
        scopes=tuple(scope.value for scope in KeyScope),
        hmac="",
        created_at=record.created_at or 0.0,
        revoked_at=record.revoked_at,
        slow=slow,
        in_closed_bucket=record.in_closed_bucket is True,
        seal=record.seal or None,
        defect=defect,
    )


def encoded(key: StoredKey) -> bytes:
    """Return the record of a key that was read with ``decoded``."""
    if key.slow is None or key.tenant_id is None:
        raise ValueError("only a key of 0.5.1 has a record of this form")
    record = _Record(
        key_id=key.api_key_id,
        tenant_id=key.tenant_id,
        kdf=key.slow.kdf,
        iterations=key.slow.iterations,
        salt_b64=key.slow.salt_b64,
        hash_b64=key.slow.hash_b64,
        created_at=key.created_at,
        revoked_at=key.revoked_at,
        in_closed_bucket=key.in_closed_bucket or msgspec.UNSET,
        seal=key.seal or msgspec.UNSET,
    )
    return msgspec.json.encode(record)

"""API keys as pyoco-server 0.5.1 issues and stores them, written down independently of our code."""

import base64
import hashlib
import json
import secrets
from typing import Any, NamedTuple

import nats


class IssuedBy051(NamedTuple):
    """A key and its record."""

    text: str
    key_id: str
    record: dict[str, Any]

    async def store(self, nats_url: str, bucket: str) -> None:
        connection = await nats.connect(nats_url)
        try:
            kv = await connection.jetstream().key_value(bucket)
            await kv.put(f"api_keys.{self.key_id}", json.dumps(self.record).encode())
        finally:
            await connection.close()


def issued(tenant: str, *, pepper: str = "", iterations: int = 1_000, **changes: object) -> IssuedBy051:
    key_id, salt = secrets.token_hex(12), secrets.token_bytes(16)
    secret = secrets.token_urlsafe(32)
    derived = hashlib.pbkdf2_hmac("sha256", (secret + pepper).encode(), salt, iterations, dklen=32)
    record = {
        "key_id": key_id,
        "tenant_id": tenant,
        "kdf": "pbkdf2_hmac_sha256",
        "iterations": iterations,
        "salt_b64": base64.urlsafe_b64encode(salt).decode().rstrip("="),
        "hash_b64": base64.urlsafe_b64encode(derived).decode().rstrip("="),
        "created_at": 1_790_000_000.0,
        "revoked_at": None,
        **changes,
    }
    return IssuedBy051(f"pyoco_{key_id}.{secret}", key_id, record)


async def record_in(nats_url: str, bucket: str, key_id: str) -> dict[str, Any]:
    """What is stored now."""
    connection = await nats.connect(nats_url)
    try:
        kv = await connection.jetstream().key_value(bucket)
        value = (await kv.get(f"api_keys.{key_id}")).value
    finally:
        await connection.close()
    found: dict[str, Any] = json.loads(value or b"{}")
    return found

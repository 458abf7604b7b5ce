"""Logging in to NATS with a credentials file, on a server that is run by an operator: JWTs and all."""

import asyncio
import base64
import os
from pathlib import Path

import msgspec
import nkeys  # type: ignore[import-untyped]  # it ships no type information
import pytest

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.app.ports import UnavailableError
from tests.adapters.real_nats import NatsServer


class Signer:
    """An operator, an account or a user, with its seed."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def vouches_for(self, subject: "Signer", kind: str, **claims: object) -> str:
        """Return a JWT about an identity."""
        body = {"iss": self.public, "sub": subject.public, "iat": 1, "name": kind, "jti": subject.public}
        head = _text(msgspec.json.encode({"typ": "JWT", "alg": "ed25519-nkey"}))
        claimed = _text(msgspec.json.encode({**body, "nats": {"type": kind, "version": 2, **claims}}))
        return f"{head}.{claimed}.{_text(self._pair.sign(f'{head}.{claimed}'.encode()))}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def credentials(directory: Path, jwt: str, seed: bytes) -> Path:
    file = directory / "user.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return file


def test_a_credentials_file_logs_in(tmp_path: Path) -> None:
    operator, account = Signer(nkeys.PREFIX_BYTE_OPERATOR), Signer(nkeys.PREFIX_BYTE_ACCOUNT)
    user, stranger = Signer(nkeys.PREFIX_BYTE_USER), Signer(nkeys.PREFIX_BYTE_USER)
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
    directory = tmp_path / "nats"
    directory.mkdir()
    server = NatsServer(directory, jetstream=False)
    server._config.write_text(
        f"operator: {operator.vouches_for(operator, 'operator')}\n"
        f"resolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {operator.vouches_for(account, 'account', limits=limits)} }}\n"
        f'log_file: "{directory / "server.log"}"\n'
    )

    async def scenario() -> None:
        jwt = account.vouches_for(user, "user", subs=-1, data=-1, payload=-1)
        good = str(credentials(tmp_path, jwt, user.seed))
        async with await connect(server.url, name="test", user_credentials=good) as connection:
            assert connection.is_connected
        bad = str(credentials(tmp_path, jwt, stranger.seed))
        with pytest.raises(UnavailableError) as refused:
            await connect(server.url, name="test", user_credentials=bad, connect_timeout_sec=1)
        assert stranger.seed.decode() not in str(refused.value)

    server.start()
    try:
        asyncio.run(scenario())
    finally:
        server.kill()

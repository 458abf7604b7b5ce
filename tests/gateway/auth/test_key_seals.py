"""A program that can write the bucket of keys, but lacks the pepper, cannot raise the rights of any key."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from typing_extensions import override

from pyoco_server.adapters.memory.registries import MemoryKeyStore
from pyoco_server.app.api_keys.cache import KeyCache
from pyoco_server.app.api_keys.errors import ApiKeyRefusedError
from pyoco_server.app.api_keys.format import KeyScope, fingerprint, key_text, pepper_mark
from pyoco_server.app.api_keys.service import IssuedKey, KeyService
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.errors import InvalidInputError
from tests.gateway.auth.records_051 import issued as issued_051
from tests.gateway.auth.test_key_ring import Clock
from tests.gateway.auth.world import PEPPER, Open, World, issued

Record = dict[str, Any]


class Attacker:
    """A program that can write the bucket, and has read everything in it."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket

    async def read(self, token: str) -> Record:
        found: Record = json.loads((await self._bucket.get(token)).value)
        return found

    async def write(self, token: str, record: Record) -> None:
        await self._bucket.put(token, json.dumps(record).encode())

    async def change(self, token: str, **fields: object) -> None:
        await self.write(token, {**await self.read(token), **fields})

    async def remove_all_but(self, *tokens: str) -> None:
        for token in set(await self._bucket.keys()) - set(tokens):
            await self._bucket.delete(token)


@contextlib.asynccontextmanager
async def attacking(world: World) -> AsyncIterator[Attacker]:
    connection = await nats.connect(world.nats_url)
    try:
        yield Attacker(await connection.jetstream().key_value(world.settings().names.auth_kv_bucket))
    finally:
        await connection.close()


async def status(gateway: Open, key: IssuedKey | str, path: str = "/runs") -> int:
    async with gateway.client(key) as client:
        return (await client.get(path)).status_code


async def refused(gateway: Open, key: IssuedKey | str) -> None:
    """Wait until the gateway refuses a key: its copy of the keys may be a quarter of a second old."""
    async with asyncio.timeout(20):
        while await status(gateway, key) != 403:
            pass


def without_seal(number: int, **changes: object) -> tuple[str, StoredKey]:
    """A key as an earlier version of this software issued and stored it."""
    key_id = f"k{number:016x}"
    text = key_text(key_id, number.to_bytes(32, "big"))
    stored = StoredKey(
        api_key_id=key_id,
        tenant_id="acme",
        scopes=("runs",),
        hmac=fingerprint(text.encode(), PEPPER.encode()),
        pepper_mark=pepper_mark(PEPPER.encode()),
        created_at=1_790_000_000.0,
    )
    return text, msgspec.structs.replace(stored, **changes)


def as_record(key: StoredKey) -> Record:
    record: Record = json.loads(msgspec.json.encode(key))
    return record


@pytest.mark.parametrize(
    "raised",
    [
        {"tenant_id": None},
        {"tenant_id": "globex"},
        {"scopes": ["runs", "operate", "wheels"]},
        {"expires_at": None},
        {"expires_at": 4_000_000_000.0},
        {"retired": {"hmac": "0" * 64, "until": 4_000_000_000.0}},
        {"created_at": 1.0},
        {"name": "another"},
        {"seal": None, "tenant_id": None},
        {"seal": "0" * 64, "tenant_id": None},
    ],
)
def test_a_changed_record_admits_no_request(world: World, raised: Record, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, attacking(world) as attacker:
            key = await gateway.desk.create("acme", scopes={KeyScope.RUNS}, expires_at=3_000_000_000.0)
            assert await status(gateway, key) == 200
            await attacker.change(key.stored.api_key_id, **raised)
            await refused(gateway, key)
            assert await status(gateway, key, "/workers") == 403

    asyncio.run(scenario())
    [line] = [record.__dict__ for record in caplog.records if record.__dict__.get("action") == "api_key_refused"]
    assert line["err_id"] == "ERR-PYOCO-0140"
    assert line["api_key_id"].startswith("k")


def test_a_revoked_key_is_not_made_valid_again_by_a_changed_or_an_earlier_record(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, attacking(world) as attacker:
            key = await issued(gateway, "acme")
            key_id = key.stored.api_key_id
            before = await attacker.read(key_id)
            await gateway.desk.revoke(key_id)
            await refused(gateway, key)
            await attacker.change(key_id, revoked_at=None)
            assert await status(gateway, key) == 403
            await attacker.write(key_id, before)
            assert await status(gateway, key) == 403, "this gateway has seen the revocation"

    asyncio.run(scenario())


def test_a_secret_that_was_replaced_is_not_accepted_again_by_an_earlier_record(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, attacking(world) as attacker:
            old = await issued(gateway, "acme")
            before = await attacker.read(old.stored.api_key_id)
            new = await gateway.desk.rotate(old.stored.api_key_id)
            assert await status(gateway, new) == 200
            await attacker.write(old.stored.api_key_id, before)
            await refused(gateway, old)

    asyncio.run(scenario())


def test_a_forged_key_is_not_sealed_by_a_new_secret(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, attacking(world) as attacker:
            key = await gateway.desk.create("acme", scopes={KeyScope.RUNS})
            for more in ({}, {"pepper_mark": "00000000"}, {"seal": None, "hmac": "0" * 64}):
                await attacker.change(key.stored.api_key_id, tenant_id=None, **more)
                with pytest.raises(InvalidInputError, match="does not count"):
                    await gateway.desk.rotate(key.stored.api_key_id)

    asyncio.run(scenario())


def test_keys_of_earlier_versions_count_are_sealed_once_and_never_without_a_seal_again(world: World) -> None:
    text, old = without_seal(1)
    of_051 = issued_051("acme", pepper=PEPPER)
    kept = f"api_keys.{of_051.key_id}"

    async def scenario() -> None:
        async with world.open(world.settings(mode="none")), attacking(world) as attacker:
            await attacker.write(old.api_key_id, as_record(old))
            await attacker.write(kept, of_051.record)
            async with world.open() as gateway:
                assert [await status(gateway, key) for key in (text, of_051.text)] == [200, 200]
                assert (await attacker.read(old.api_key_id))["seal"]
                assert (await attacker.read(kept))["seal"]
                new = await gateway.desk.create("acme", scopes={KeyScope.RUNS})
                forged = as_record(msgspec.structs.replace(old, tenant_id=None))
                await attacker.write(old.api_key_id, forged)
                await attacker.write(kept, {**of_051.record, "tenant_id": "globex"})
                await attacker.change(new.stored.api_key_id, seal=None, in_closed_bucket=False, tenant_id=None)
                for key in (text, of_051.text, new):
                    await refused(gateway, key)
            await attacker.remove_all_but(old.api_key_id, kept)  # also the mark
            async with world.open() as restarted:
                assert [await status(restarted, key) for key in (text, of_051.text)] == [403, 403]

    asyncio.run(scenario())


def test_another_gateway_knows_from_any_newer_key_that_the_bucket_is_closed(world: World, tmp_path: Path) -> None:
    text, old = without_seal(2)

    async def scenario() -> None:
        async with world.open() as gateway, attacking(world) as attacker:
            kept = await issued(gateway, "acme")
            await attacker.remove_all_but(kept.stored.api_key_id)
            await attacker.write(old.api_key_id, as_record(msgspec.structs.replace(old, tenant_id=None)))
            elsewhere = World(world.nats_url, world.prefix, tmp_path / "elsewhere")
            async with elsewhere.open() as other:
                assert await status(other, kept) == 200
                assert await status(other, text) == 403

    asyncio.run(scenario())


class Interrupted(MemoryKeyStore):
    """A store whose process dies after so many writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = 1_000

    @override
    async def update(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey | None:
        self._count()
        return await super().update(api_key_id, change)

    @override
    async def put_mark(self, mark: str) -> None:
        self._count()
        await super().put_mark(mark)

    def _count(self) -> None:
        if self.writes_left == 0:
            raise UnavailableError("the process died")
        self.writes_left -= 1


def test_sealing_that_a_crash_interrupts_locks_no_key_out_and_is_completed() -> None:
    old = [without_seal(number) for number in range(1, 4)]

    async def scenario(writes: int) -> None:
        store, clock, pepper = Interrupted(), Clock(), PEPPER.encode()
        for _, key in old:
            await store.add(key)
        store.writes_left = writes
        with pytest.raises(UnavailableError):
            await KeyService(store, clock, bytes, pepper=pepper).seal_once()
        store.writes_left = 1_000
        for _ in range(2):  # before and after another process completes it
            for text, _ in old:
                found = await KeyCache(store, clock, pepper=pepper).recognise(text.encode())
                assert found.tenant_id == "acme"
            await KeyService(store, clock, bytes, pepper=pepper).seal_once()
        text, key = without_seal(9)
        await store.add(key)
        with pytest.raises(ApiKeyRefusedError):
            await KeyCache(store, clock, pepper=pepper).recognise(text.encode())

    for writes in range(4):
        asyncio.run(scenario(writes))


def test_a_gateway_whose_keys_are_not_protected_warns_of_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def opened(**auth: Any) -> list[str]:
        caplog.clear()
        async with world.open(world.settings(**auth)):
            lines = [record.__dict__ for record in caplog.records if record.levelno >= logging.WARNING]
            return [line["reason"] for line in lines if line.get("err_id") == "ERR-PYOCO-0141"]

    with_pepper = asyncio.run(opened())
    assert len(with_pepper) == 1
    assert "NATS has no users" in with_pepper[0]
    without_pepper = asyncio.run(opened(pepper=None))
    assert "PYOCO_AUTH_PEPPER is not set" in without_pepper[0]
    assert len(without_pepper) == 2
    assert asyncio.run(opened(mode="none")) == []

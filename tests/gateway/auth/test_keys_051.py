"""API keys that 0.5.1 issued: let in by our gateways, listed and revoked by our commands, still good for 0.5.1."""

import asyncio
import io
import json
from typing import Any

import pytest

from pyoco_server import admin_cli
from pyoco_server.adapters.jetstream.stores import keys_051 as records
from pyoco_server.adapters.memory.registries import MemoryKeyStore
from pyoco_server.app.api_keys import keys_051
from pyoco_server.app.api_keys.cache import KeyCache
from pyoco_server.app.api_keys.errors import ApiKeyRefusedError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.cli.server.main import main
from tests.gateway.auth.records_051 import IssuedBy051, issued, record_in
from tests.gateway.auth.test_key_ring import Clock
from tests.gateway.auth.test_keys_command import environment
from tests.gateway.auth.world import PEPPER, World
from tests.logs.log_lines import logger_into


def stored(world: World, *keys: IssuedBy051) -> None:
    async def store() -> None:
        async with world.open():  # creates the bucket
            for key in keys:
                await key.store(world.nats_url, bucket_of(world))

    asyncio.run(store())


def bucket_of(world: World) -> str:
    return world.settings().names.auth_kv_bucket


def statuses(world: World, key: str, *paths: str) -> list[int]:
    async def ask() -> list[int]:
        async with world.open() as gateway, gateway.client(key) as client:
            return [(await client.get(path)).status_code for path in paths]

    return asyncio.run(ask())


@pytest.fixture
def typed(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, of: Any = main) -> tuple[int, Any, str]:
        code = of(arguments)
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    return run


@pytest.mark.spec("004 REQ-0016", "004 REQ-0017")
def test_a_key_of_051_is_accepted_wherever_051_accepted_it(world: World) -> None:
    key, wrong = issued("acme", pepper=PEPPER), issued("acme", pepper="another")
    stored(world, key, wrong)
    assert statuses(world, key.text, "/runs", "/workers", "/wheels", "/metrics") == [200] * 4
    assert statuses(world, key.text[:-1] + ("A" if key.text[-1] != "A" else "B"), "/runs") == [403]
    assert statuses(world, wrong.text, "/runs") == [403]


def test_runs_of_its_tenant_and_no_others_are_seen(world: World) -> None:
    acme, globex = issued("acme", pepper=PEPPER), issued("globex", pepper=PEPPER)
    stored(world, acme, globex)

    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(acme.text) as ours, gateway.client(globex.text) as theirs:
            run_id = (await ours.post("/runs", json={"flow_name": "any"})).json()["run_id"]
            snapshot = (await ours.get(f"/runs/{run_id}", params={"include": "full"})).json()
            assert (snapshot["tenant_id"], snapshot["api_key_id"]) == ("acme", acme.key_id)
            assert (await theirs.get(f"/runs/{run_id}")).status_code == 404

    asyncio.run(scenario())


def test_a_key_of_051_is_revoked_in_its_own_record(world: World, typed: Any) -> None:
    key = issued("acme", pepper=PEPPER)
    stored(world, key)
    code, listed, _ = typed("keys", "list", "--json")
    assert (code, [(one["api_key_id"], one["state"], one["issued_by"]) for one in listed]) == (
        0,
        [(key.key_id, "active", "0.5.1")],
    )
    assert typed("keys", "revoke", key.key_id, "--json")[1]["state"] == "revoked"
    assert statuses(world, key.text, "/runs") == [403]
    record = asyncio.run(record_in(world.nats_url, bucket_of(world), key.key_id))
    assert record.pop("revoked_at") > 0
    assert record.pop("seal"), "0.5.1 reads it all the same"
    assert record == {name: value for name, value in key.record.items() if name != "revoked_at"}


def test_a_key_of_051_gets_no_new_secret(world: World, typed: Any) -> None:
    key = issued("acme", pepper=PEPPER)
    stored(world, key)
    code, _, err = typed("keys", "rotate", key.key_id)
    assert code == 1
    assert "create a new key, then revoke it" in err
    assert statuses(world, key.text, "/runs") == [200]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tenant_id": "a--b"}, "tenant:"),
        ({"kdf": "scrypt"}, "scrypt"),
        ({"iterations": 10**9}, "iterations"),
        ({"salt_b64": "$$$"}, "base64"),
    ],
)
def test_a_key_that_can_never_be_accepted_is_listed_with_the_reason(
    world: World, typed: Any, changes: dict[str, object], why: str
) -> None:
    key = issued("acme", pepper=PEPPER, iterations=1_000)
    broken = key._replace(record={**key.record, **changes})
    stored(world, broken)
    assert statuses(world, broken.text, "/runs") == [403]
    [listed] = typed("keys", "list", "--json")[1]
    assert listed["state"] == "reissue"
    assert why in listed["defect"]
    _, found, _ = typed("migrate", "--output", "json")
    assert not found["done"]
    assert [one["state"] for one in found["keys"]] == ["reissue"]


def test_the_old_command_answers_as_it_did(world: World, typed: Any) -> None:
    code, created, err = typed("api-key", "create", "--tenant", "demo", of=admin_cli.main)
    assert (code, created["tenant_id"]) == (0, "demo")
    assert created["key_id"] == created["api_key_id"]
    assert "pyoco-server keys" in err
    assert statuses(world, created["api_key"], "/runs") == [200]
    [listed] = typed("api-key", "list", of=admin_cli.main)[1]
    assert listed["key_id"] == created["key_id"]
    revoked = typed("api-key", "revoke", "--key-id", created["key_id"], of=admin_cli.main)[1]
    assert revoked["revoked_at"] is not None
    assert statuses(world, created["api_key"], "/runs") == [403]
    code, _, err = typed("--nats-url", "http://x", "api-key", "list", of=admin_cli.main)
    assert code == 1
    assert "ERR-PYOCO-0018" in err
    code, _, err = typed("api-key", "create", of=admin_cli.main)
    assert code == 1
    assert "--tenant" in err


class Ring:
    """A ring over a store in memory, and how often a slow hash was computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.computed = MemoryKeyStore(), 0
        self.ring = KeyCache(self.store, Clock(), pepper=PEPPER.encode(), fresh_sec=0.0)
        compute = keys_051._matches

        def counted(*arguments: Any) -> bool:
            self.computed += 1
            return compute(*arguments)

        monkeypatch.setattr(keys_051, "_matches", counted)

    async def keep(self, key: IssuedBy051) -> StoredKey:
        read = records.decoded(json.dumps(key.record).encode())
        await self.store.add(read)
        return read


def test_the_slow_hash_is_computed_once_for_each_key_and_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        at, key = Ring(monkeypatch), issued("acme", pepper=PEPPER)
        kept = await at.keep(key)
        for _ in range(3):
            assert await at.ring.recognise(key.text.encode()) == kept
            assert await at.ring.still_counts(key.text.encode())
        assert at.computed == 1
        await asyncio.gather(*(at.ring.recognise(key.text.encode()) for _ in range(100)))
        assert at.computed == 1
        for _ in range(3):
            with pytest.raises(ApiKeyRefusedError):
                await at.ring.recognise(key.text.encode() + b"x")
        assert at.computed == 2
        with pytest.raises(ApiKeyRefusedError):
            await at.ring.recognise(issued("acme").text.encode())
        assert at.computed == 2

    asyncio.run(scenario())


def test_wrong_secrets_do_not_queue_up_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        at, key = Ring(monkeypatch), issued("acme", pepper=PEPPER)
        await at.keep(key)
        await at.ring.recognise(key.text.encode())
        guesses = [key.text.encode() + b"%d" % number for number in range(keys_051.MOST_WAITING + 10)]
        verdicts = await asyncio.gather(*map(at.ring.recognise, guesses), return_exceptions=True)
        kinds = {type(verdict) for verdict in verdicts}
        assert kinds == {ApiKeyRefusedError, UnavailableError}
        assert (await at.ring.recognise(key.text.encode())).api_key_id == key.key_id

    asyncio.run(scenario())


def test_a_record_that_changed_is_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        at, key, other = Ring(monkeypatch), issued("acme", pepper=PEPPER), issued("acme", pepper=PEPPER)
        await at.keep(key)
        await at.ring.recognise(key.text.encode())
        changed = records.decoded(json.dumps({**other.record, "key_id": key.key_id}).encode())
        await at.store.update(key.key_id, lambda _: changed)
        with pytest.raises(ApiKeyRefusedError):
            await at.ring.recognise(key.text.encode())

    asyncio.run(scenario())


def test_a_key_of_051_does_not_get_into_the_log() -> None:
    key = issued("acme")
    written = io.StringIO()
    with logger_into(written) as logger:
        logger.info("GET /runs/%s/watch", key.text)
    assert key.text.partition(".")[2] not in written.getvalue()
    assert key.key_id in written.getvalue()

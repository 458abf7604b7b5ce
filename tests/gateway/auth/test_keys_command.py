"""``pyoco-server keys``, as it is typed."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from pyoco_server.cli.server.main import main
from pyoco_server.settings.section import var_of
from tests.gateway.auth.routes import ROWS, every_route
from tests.gateway.auth.test_every_route import ask
from tests.gateway.auth.test_key_seals import as_record, attacking, status, without_seal
from tests.gateway.auth.world import PEPPER, World

Run = Callable[..., tuple[int, str, str]]


def environment(world: World) -> dict[str, str]:
    names = world.settings().names
    variables = {var_of(field).name: str(getattr(names, name)) for name, field in type(names).model_fields.items()}
    return {
        **variables,
        "PYOCO_NATS_URL": world.nats_url,
        "PYOCO_AUTH_PEPPER": PEPPER,
        "PYOCO_DATA_DIR": str(world.directory),
        "PYOCO_LOAD_DOTENV": "0",
    }


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    for name, value in environment(world).items():
        monkeypatch.setenv(name, value)

    def typed(*arguments: str) -> tuple[int, str, str]:
        code = main(["keys", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return typed


def answer(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert code == 0, err
    return json.loads(out)


@pytest.mark.spec("004 REQ-0016")
def test_a_key_is_created_used_listed_rotated_and_revoked(run: Run, world: World) -> None:
    created = answer(
        run("create", "--tenant", "acme", "--scope", "runs", "--scope", "operate", "--name", "ci", "--json")
    )
    assert created["api_key"].startswith(f"pyoco_{created['api_key_id']}_")
    assert (created["tenant_id"], created["scopes"], created["name"]) == ("acme", ["runs", "operate"], "ci")
    assert (created["state"], created["expires_at"]) == ("active", None)

    async def status(key: str, path: str = "/runs") -> int:
        async with world.open() as gateway, gateway.client(key) as client:
            return (await client.get(path)).status_code

    assert asyncio.run(status(created["api_key"])) == 200
    listed = answer(run("list", "--json"))
    assert [key["api_key_id"] for key in listed] == [created["api_key_id"]]
    assert "api_key" not in listed[0]
    rotated = answer(run("rotate", created["api_key_id"], "--json"))
    assert rotated["api_key_id"] == created["api_key_id"]
    assert rotated["api_key"] != created["api_key"]
    assert asyncio.run(status(created["api_key"])) == 403
    assert asyncio.run(status(rotated["api_key"], "/workers")) == 200
    code, out, err = run("revoke", created["api_key_id"])
    assert (code, out) == (0, "")
    assert "is revoked" in err
    assert asyncio.run(status(rotated["api_key"])) == 403
    assert answer(run("list", "--json"))[0]["state"] == "revoked"
    code, _, err = run("rotate", created["api_key_id"])
    assert code == 1
    assert "is revoked; create a new key" in err


@pytest.mark.spec("004 REQ-0016")
def test_a_key_without_scopes_is_accepted_on_every_route(run: Run, world: World) -> None:
    key = answer(run("create", "--tenant", "acme", "--json"))["api_key"]

    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(key) as client:
            for method, path in every_route(gateway.app):
                answered = await ask(client, method, path, ROWS[method, path])
                assert answered.status_code not in {401, 403, 500}, (method, path)

    asyncio.run(scenario())


def test_for_people_the_key_alone_is_on_stdout(run: Run) -> None:
    code, out, err = run("create", "--tenant", "acme", "--expires", "30d")
    assert code == 0
    [key] = out.splitlines()
    assert key.startswith("pyoco_k")
    assert "cannot be shown again" in err
    assert key not in err
    code, table, _ = run("list")
    assert code == 0
    assert key.split("_")[1] in table
    assert key.split("_")[2] not in table
    assert "acme" in table


def test_default_scopes_and_all_tenants(run: Run) -> None:
    assert answer(run("create", "--tenant", "acme", "--json"))["scopes"] == ["runs", "operate", "wheels", "yaml"]
    created = answer(run("create", "--all-tenants", "--scope", "operate", "--json"))
    assert (created["tenant_id"], created["scopes"]) == (None, ["operate"])
    code, table, _ = run("list")
    assert code == 0
    assert "(all)" in table


def test_when_a_key_ends(run: Run) -> None:
    created = answer(run("create", "--tenant", "acme", "--expires", "1.5h", "--json"))
    assert created["expires_at"] - created["created_at"] == pytest.approx(5_400, abs=60)
    dated = answer(run("create", "--tenant", "acme", "--expires", "2100-01-31T12:00:00+01:00", "--json"))
    assert dated["expires_at"] == 4_105_076_400
    assert answer(run("create", "--tenant", "acme", "--expires", "2100-01-31", "--json"))["expires_at"] == 4_105_036_800


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["create"], "--tenant --all-tenants"),
        (["create", "--tenant", "a b"], "at most 40 letters"),
        (["create", "--tenant", "acme", "--all-tenants"], "not allowed with"),
        (["create", "--tenant", "acme", "--scope", "root"], "invalid choice"),
        (["create", "--tenant", "acme", "--expires", "soon"], "such as 30d"),
        (["create", "--tenant", "acme", "--expires", "2001-01-01"], "in the past"),
        (["create", "--tenant", "acme", "--name", "\x1b[31m"], "printable"),
        (["revoke", "k0000000000000000"], "there is no key"),
        (["revoke", "nonsense"], "16 hexadecimal digits"),
        (["rotate", "k0000000000000000", "--keep-old-for", "-1"], "seconds above 0"),
        ([], "COMMAND"),
    ],
)
def test_mistakes_end_with_code_1_and_leave_nothing(run: Run, arguments: list[str], problem: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert problem in err
    assert answer(run("list", "--json")) == []


def test_a_whole_key_in_place_of_its_id_is_not_repeated(run: Run) -> None:
    created = answer(run("create", "--tenant", "acme", "--json"))
    code, out, err = run("revoke", created["api_key"])
    assert code == 1
    assert created["api_key"].rpartition("_")[2] not in out + err


def test_another_pepper_is_warned_about(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "--tenant", "acme")
    monkeypatch.setenv("PYOCO_AUTH_PEPPER", "another")
    code, _, err = run("create", "--tenant", "acme")
    assert code == 0
    assert "another PYOCO_AUTH_PEPPER" in err
    assert sorted(key["state"] for key in answer(run("list", "--json"))) == ["active", "other pepper"]


def test_without_nats_it_says_so(run: Run) -> None:
    code, out, err = run("list", "--nats-url", "nats://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert "cannot connect to NATS" in err


def test_the_command_seals_what_the_operator_names(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text, late = without_seal(3)
    created = answer(run("create", "--tenant", "acme", "--json"))
    assert created["problem"] is None

    async def restore() -> None:
        async with attacking(world) as attacker:
            await attacker.write(late.api_key_id, as_record(late))

    asyncio.run(restore())
    listed = {key["api_key_id"]: key for key in answer(run("list", "--json"))}
    assert listed[late.api_key_id]["state"] == "refused"
    assert "not sealed" in listed[late.api_key_id]["problem"]
    assert answer(run("seal", "--json")) == []
    [sealed] = answer(run("seal", late.api_key_id, "--json"))
    assert (sealed["state"], sealed["tenant_id"]) == ("active", "acme")

    async def used() -> int:
        async with world.open() as gateway:
            return await status(gateway, text)

    assert asyncio.run(used()) == 200
    monkeypatch.delenv("PYOCO_AUTH_PEPPER")
    code, _, err = run("seal")
    assert code == 1
    assert "PYOCO_AUTH_PEPPER" in err

"""Every route of the gateway with every kind of key: which requests are accepted, and how the others are refused."""

import asyncio
import uuid
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from pyoco_server.app.api_keys.format import KeyScope
from tests.gateway.auth.routes import ANY, OPEN, ROWS, Row, every_route, filled, filled_body
from tests.gateway.auth.world import Open, World, issued, now
from tests.waiting import wait_until

UNKNOWN = str(uuid.uuid4())
NEVER = f"pyoco_k{'0' * 16}_{'0' * 64}"


async def ask(client: httpx.AsyncClient, method: str, path: str, row: Row, **values: str) -> httpx.Response:
    """One request for a route."""
    run_id = values.get("run_id", UNKNOWN)
    ids = {"run_id": run_id, "execution_id": run_id, "sequence": "1", "node_id": "work", **values}
    return await client.request(
        method,
        filled(path, **ids),
        json=filled_body(row.json, run_id) if row.json is not None else None,
        data=row.form,
        files=row.files,
        params=row.query,
    )


def error(answer: httpx.Response) -> tuple[int, str | None]:
    body: Any = answer.json() if answer.content else {}
    return answer.status_code, body.get("error", {}).get("err_id") if isinstance(body, dict) else None


def test_every_route_has_a_row(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            routes = every_route(gateway.app)
            assert len(routes) > 30
            assert not set(routes) - ROWS.keys(), "give these routes a row, and a scope in gateway/middleware/auth.py"

    asyncio.run(scenario())


def test_a_new_route_needs_a_row_and_is_closed_until_then(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            nested = APIRouter(prefix="/new")

            @nested.get("/thing")
            async def thing() -> str:
                return "open to all?"

            gateway.app.include_router(nested)
            assert set(every_route(gateway.app)) - ROWS.keys() == {("GET", "/new/thing")}
            async with gateway.client() as stranger, gateway.client(NEVER) as guesser:
                assert error(await stranger.get("/new/thing")) == (401, "ERR-PYOCO-0014")
                assert error(await guesser.get("/new/thing")) == (403, "ERR-PYOCO-0015")

    asyncio.run(scenario())


async def _bad_keys(gateway: Open) -> dict[str, str]:
    revoked = await issued(gateway, "acme")
    await gateway.desk.revoke(revoked.stored.api_key_id)
    ends = now() + 0.05
    expired = await gateway.desk.create("acme", scopes=tuple(KeyScope), expires_at=ends)
    good = await issued(gateway, "acme")
    wrong = good.text[:-1] + ("0" if good.text[-1] != "0" else "1")
    await wait_until(lambda: now() > ends)
    return {"unknown": NEVER, "wrong": wrong, "revoked": revoked.text, "expired": expired.text, "nonsense": "x y"}


@pytest.mark.spec(
    "004 REQ-0016",
    "004 REQ-0017",
    "004 REQ-0023",
    "004 REQ-0025",
    "004 ERR-PYOCO-0014",
    "004 ERR-PYOCO-0015",
)
def test_without_a_valid_key_nothing_is_served(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            keys = await _bad_keys(gateway)
            for method, path in every_route(gateway.app):
                row = ROWS[method, path]
                async with gateway.client() as stranger:
                    answer = await ask(stranger, method, path, row)
                if row.scope is OPEN:
                    assert answer.status_code in {200, 404}, (method, path)
                    continue
                expected = {(401, "ERR-PYOCO-0014"), (401, None)} if method == "HEAD" else {(401, "ERR-PYOCO-0014")}
                assert error(answer) in expected, (method, path)
                for kind, text in keys.items():
                    async with gateway.client(text) as client:
                        answer = await ask(client, method, path, row)
                    assert answer.status_code == 403, (method, path, kind)
                    assert method == "HEAD" or error(answer) == (403, "ERR-PYOCO-0015"), (method, path, kind)

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_a_key_opens_what_its_scope_names_and_nothing_else(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            keys = {scope: await issued(gateway, "acme", scope) for scope in KeyScope}
            for method, path in every_route(gateway.app):
                row = ROWS[method, path]
                for scope, key in keys.items():
                    async with gateway.client(key) as client:
                        answer = await ask(client, method, path, row)
                    if row.scope in {OPEN, ANY, scope}:
                        assert answer.status_code not in {401, 403, 500}, (method, path, scope)
                    else:
                        assert error(answer) == (403, "ERR-PYOCO-0107"), (method, path, scope)
                        details = answer.json()["error"]["details"]
                        assert details == {"missing_scope": row.scope, "scopes": [scope.value]}

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_without_a_key_an_unknown_path_is_not_distinguished(world: World) -> None:
    paths = ["/runs/x/y/z", "/runs/", "/workers/x/y", "/nothing", "/metrics/x", "/static", "/health/x", "/%2Fruns"]

    async def scenario() -> None:
        async with world.open() as gateway:
            key = await issued(gateway, "acme")
            async with gateway.client() as stranger, gateway.client(key) as client:
                for path in [*paths, "/redoc", "/health/%2e%2e/runs"]:
                    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                        assert error(await stranger.request(method, path)) == (401, "ERR-PYOCO-0014"), (method, path)
                    assert (await client.get(path)).status_code in {404, 405}, path

    asyncio.run(scenario())


def test_a_target_that_is_no_path_is_not_found(world: World) -> None:
    async def scenario() -> None:
        async with world.listening() as gateway:
            key = await issued(gateway, "acme")
            at = httpx.URL(gateway.url)
            for method in ("OPTIONS", "GET", "POST"):
                for header, expected in (("", b"HTTP/1.1 401"), (f"X-API-Key: {key.text}\r\n", b"HTTP/1.1 404")):
                    reader, writer = await asyncio.open_connection(at.host, at.port)
                    writer.write(f"{method} * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n".encode())
                    assert (await reader.read()).startswith(expected), method
                    writer.close()

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_the_name_of_the_key_header_can_be_set(world: World) -> None:
    async def scenario() -> None:
        async with world.open(world.settings(api_key_header="X-Team-Key")) as gateway:
            key = await issued(gateway, "acme")
            async with gateway.client(key) as usual, gateway.client(**{"X-Team-Key": key.text}) as named:
                answer = await usual.get("/runs")
                assert error(answer) == (401, "ERR-PYOCO-0014")
                assert "X-Team-Key" in answer.json()["detail"]
                assert (await named.get("/runs")).status_code == 200

    asyncio.run(scenario())


def test_two_keys_in_one_request_are_none(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            key = await issued(gateway, "acme")
            async with gateway.client() as client:
                answer = await client.get("/runs", headers=[("X-API-Key", key.text), ("X-API-Key", key.text)])
                assert error(answer) == (403, "ERR-PYOCO-0015")
                empty = await client.get("/runs", headers=[("X-API-Key", "")])
                assert error(empty) == (401, "ERR-PYOCO-0014")

    asyncio.run(scenario())


def test_a_key_in_the_address_is_no_key(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            key = await issued(gateway, "acme")
            async with gateway.client() as stranger:
                for name in ("api_key", "X-API-Key", "key", "token"):
                    assert (await stranger.get("/runs", params={name: key.text})).status_code == 401

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_without_authentication_no_key_is_needed(world: World) -> None:
    async def scenario() -> None:
        async with world.open(world.settings(mode="none")) as gateway, gateway.client() as stranger:
            assert (await stranger.get("/runs")).status_code == 200
            run_id = (await stranger.post("/runs", json={"flow_name": "f"})).json()["run_id"]
            snapshot = (await stranger.get(f"/runs/{run_id}")).json()
            assert not {"tenant_id", "api_key_id"} & {name for name, value in snapshot.items() if value is not None}

    asyncio.run(scenario())


def test_the_texts_are_in_the_readers_language(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway, gateway.client(**{"Accept-Language": "ja"}) as stranger:
            assert (await stranger.get("/runs")).json()["error"]["message"] == "API key が必要です"
            refused = await stranger.get("/runs", headers={"X-API-Key": NEVER})
            assert refused.json()["error"]["message"] == "API key が無効です"

    asyncio.run(scenario())

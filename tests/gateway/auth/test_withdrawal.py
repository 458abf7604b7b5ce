"""A key that is revoked while it is in use, and a NATS that disconnects: access ends."""

import asyncio
import logging

import httpx
import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import connect
from tests.adapters.real_nats import NatsServer
from tests.gateway.auth.test_every_route import error
from tests.gateway.auth.world import PEPPER, World, issued
from tests.gateway.stand import eventually
from tests.waiting import PATIENCE_SEC, wait_until


async def _refused(client: httpx.AsyncClient) -> None:
    """Return when the gateway refuses the key; it reads the registry of keys again every ``FRESH_SEC``."""
    await _answered(client, "/runs", 403)


async def _answered(client: httpx.AsyncClient, path: str, status: int) -> httpx.Response:
    """Return the answer as soon as it has this status."""
    found: list[httpx.Response] = []

    async def is_there() -> bool:
        found.append(await client.get(path))
        return found[-1].status_code == status

    await eventually(is_there)
    return found[-1]


@pytest.mark.spec("004 REQ-0016", "004 ERR-PYOCO-0015")
def test_a_revoked_key_is_refused_by_every_gateway_within_a_second(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as one, world.open(world.settings(port=8001)) as other:
            key = await issued(one, "acme")
            async with one.client(key) as here, other.client(key) as there:
                for client in (here, there):
                    assert (await client.get("/runs")).status_code == 200
                await one.desk.revoke(key.stored.api_key_id)
                await asyncio.gather(_refused(here), _refused(there))
                answer = (await there.get("/runs")).json()
                assert (answer["error"]["err_id"], answer["detail"]) == ("ERR-PYOCO-0015", "the API key was revoked")

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_a_new_key_is_accepted_at_once_everywhere(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as one, world.open(world.settings(port=8001)) as other:
            for _ in range(5):
                key = await issued(one, "acme")
                async with other.client(key) as there:
                    assert (await there.get("/runs")).status_code == 200

    asyncio.run(scenario())


async def _events(answer: httpx.Response, seen: list[str]) -> None:
    async for line in answer.aiter_lines():
        seen.append(line)  # noqa: PERF401 the test reads it meanwhile


@pytest.mark.spec("004 REQ-0016", "004 REQ-0017")
def test_watching_ends_when_the_key_is_revoked(world: World) -> None:
    async def scenario() -> None:
        async with world.listening() as gateway:
            key, other = await issued(gateway, "acme"), await issued(gateway, "acme")
            async with gateway.client(key) as acme, gateway.client(other) as colleague:
                run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
                seen: list[str] = []
                async with acme.stream("GET", f"/runs/{run_id}/watch") as answer:
                    reading = asyncio.create_task(_events(answer, seen))
                    await wait_until(lambda: any("PENDING" in line for line in seen))
                    await gateway.desk.revoke(key.stored.api_key_id)
                    await _refused(acme)
                    assert (await colleague.post(f"/runs/{run_id}/cancel", json={})).status_code == 200
                    await asyncio.wait_for(reading, PATIENCE_SEC)
                assert not any("CANCEL" in line for line in seen)
                await wait_until(lambda: gateway.services.hub.streams.count == 0)

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_a_watch_that_has_sent_nothing_yet_ends_too(world: World) -> None:
    async def scenario() -> None:
        async with world.listening() as gateway:
            key, other = await issued(gateway, "acme"), await issued(gateway, "acme")
            async with gateway.client(key) as acme, gateway.client(other) as colleague:
                run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
                since = (await acme.get(f"/runs/{run_id}")).json()["updated_at"]
                seen: list[str] = []
                async with acme.stream("GET", f"/runs/{run_id}/watch", params={"since": since}) as answer:
                    reading = asyncio.create_task(_events(answer, seen))
                    await gateway.desk.revoke(key.stored.api_key_id)
                    await _refused(acme)
                    assert (await colleague.post(f"/runs/{run_id}/cancel", json={})).status_code == 200
                    await asyncio.wait_for(reading, PATIENCE_SEC)
                assert seen == []

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016")
def test_a_request_that_waits_gets_no_answer_after_its_key_was_revoked(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            key, other = await issued(gateway, "acme"), await issued(gateway, "acme")
            async with gateway.client(key) as acme, gateway.client(other) as colleague:
                run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
                asked = asyncio.create_task(acme.get(f"/runs/{run_id}", params={"wait_sec": 20}))
                begun = asyncio.create_task(acme.post("/runs", params={"wait_sec": 2}, json={"flow_name": "f"}))
                await wait_until(lambda: gateway.services.hub.requests.count == 2)
                await gateway.desk.revoke(key.stored.api_key_id)
                await _refused(acme)
                assert (await colleague.post(f"/runs/{run_id}/cancel", json={})).status_code == 200
                for answer in (await asked, await begun):
                    assert error(answer) == (403, "ERR-PYOCO-0015")
                    assert run_id not in answer.text

    asyncio.run(scenario())


def test_watching_continues_while_the_key_is_valid(world: World) -> None:
    async def scenario() -> None:
        async with world.listening() as gateway, gateway.client(await issued(gateway, "acme")) as acme:
            run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
            seen: list[str] = []
            async with acme.stream("GET", f"/runs/{run_id}/watch") as answer:
                reading = asyncio.create_task(_events(answer, seen))
                await wait_until(lambda: any("PENDING" in line for line in seen))
                await acme.post(f"/runs/{run_id}/cancel", json={})
                await wait_until(lambda: any("CANCEL" in line for line in seen))
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.spec("004 REQ-0016", "004 REQ-0017", "004 ERR-PYOCO-0003")
def test_no_key_is_accepted_while_nats_is_away(own_world: tuple[World, NatsServer]) -> None:
    world, server = own_world

    async def scenario() -> None:
        async with world.open() as gateway:
            key = await issued(gateway, "acme")
            never = f"pyoco_k{'0' * 16}_{'0' * 64}"
            async with gateway.client(key) as known, gateway.client(never) as unknown, gateway.client() as stranger:
                assert (await known.get("/runs")).status_code == 200
                server.kill()
                await wait_until(lambda: not gateway.services.store.is_connected)
                assert error(await unknown.get("/runs")) == (503, "ERR-PYOCO-0003")
                answer = await _answered(known, "/openapi.json", 503)  # needs a key, but no NATS
                assert error(answer) == (503, "ERR-PYOCO-0003")
                assert answer.headers["retry-after"]
                assert error(await known.get("/runs")) == (503, "ERR-PYOCO-0003")
                assert (await stranger.get("/runs")).status_code == 401
                assert (await stranger.get("/health")).status_code == 200
                assert (await stranger.get("/health/ready")).status_code == 503
                server.start()
                await wait_until(lambda: gateway.services.store.is_connected)
                await _answered(known, "/runs", 200)
                assert error(await unknown.get("/runs")) == (403, "ERR-PYOCO-0015")

    asyncio.run(scenario())


def test_a_key_stands_nowhere_in_clear(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            key = await issued(gateway, "acme")
            second = await gateway.desk.rotate(key.stored.api_key_id, keep_old_sec=60)
            answers = []
            for text in (key.text, second.text):
                async with gateway.client(text) as acme:
                    run_id = (await acme.post("/runs", json={"flow_name": "f"})).json()["run_id"]
                    paths = ("/runs", f"/runs/{run_id}", f"/runs/{run_id}/events", f"/runs/{text[:60]}", "/metrics")
                    answers += [(await acme.get(path)).text for path in paths]
            await gateway.desk.revoke(key.stored.api_key_id)
            async with gateway.client(second) as acme:
                answers.append((await acme.get("/runs")).text)
            stored = await _all_that_is_stored(world)
            secrets = [text.rpartition("_")[2] for text in (key.text, second.text)]
            logged = "\n".join(str(record.__dict__) for record in caplog.records)
            for where in (*answers, *stored, logged):
                assert not any(secret in where for secret in secrets)
                assert PEPPER not in where
            assert key.stored.api_key_id in "".join(stored)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())


async def _all_that_is_stored(world: World) -> list[str]:
    async with await connect(world.nats_url, name="reader") as connection:
        found = []
        for stream in await connection.js.streams_info():
            if world.prefix in str(stream.config.name):
                for sequence in range(max(1, stream.state.first_seq), stream.state.last_seq + 1):
                    request = msgspec.json.encode({"seq": sequence})
                    subject = f"$JS.API.STREAM.MSG.GET.{stream.config.name}"
                    answer = msgspec.json.decode((await connection.nc.request(subject, request)).data)
                    message = answer.get("message", {})
                    found.append(
                        str(message) + msgspec.json.decode(f'"{message.get("data", "")}"', type=bytes).decode("utf-8")
                    )
        assert found
        return found

"""The headers for browsers, on every answer."""

import asyncio
import base64
import contextlib
import hashlib
import re

from pyoco_server.gateway.app import create_app
from tests.gateway.auth.world import Open, World, issued

POLICY = ("default-src", "object-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")


def _directives(policy: str) -> dict[str, str]:
    return {part.split()[0]: part for part in policy.split("; ")}


def test_every_answer_has_the_headers(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:

            async def crash() -> None:
                raise RuntimeError("a mistake of ours")

            gateway.app.add_api_route("/runs-crash", crash)
            async with gateway.client(await issued(gateway, "acme")) as acme, gateway.client() as stranger:
                answers = [
                    await acme.get("/runs"),
                    await acme.get("/runs/nothing"),
                    await acme.post("/runs", json={"flow_name": 1}),
                    await acme.post("/runs", content=b"x" * 3_000_000),
                    await acme.get("/nothing"),
                    await acme.get("/metrics"),
                    await stranger.get("/runs"),
                    await stranger.get("/health"),
                    await acme.get("/runs-crash"),
                ]
                statuses = [answer.status_code for answer in answers]
                assert statuses == [200, 404, 422, 413, 404, 200, 401, 200, 500]
                for answer in answers:
                    headers = answer.headers
                    assert headers["content-security-policy"] == (
                        "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
                        "form-action 'self'"
                    )
                    assert headers["x-content-type-options"] == "nosniff"
                    assert headers["x-frame-options"] == "DENY"
                    assert headers["referrer-policy"] == "no-referrer"
                    assert headers["cache-control"] == "no-store"
                    assert headers["cross-origin-resource-policy"] == "same-origin"
                    assert "access-control-allow-origin" not in headers

    asyncio.run(scenario())


def test_headers_of_an_answer_itself_are_kept(world: World) -> None:
    async def scenario() -> None:
        async with world.open(world.settings(mode="none")) as gateway, gateway.client() as client:
            run_id = (await client.post("/runs", json={"flow_name": "f"})).json()["run_id"]
            watched = await client.get(f"/runs/{run_id}/watch", params={"timeout_sec": 1})
            assert watched.headers["x-accel-buffering"] == "no"
            assert watched.headers.get_list("cache-control") == ["no-store"]

    asyncio.run(scenario())


def test_the_page_of_the_documentation_loads_nothing_from_elsewhere(world: World) -> None:
    async def scenario() -> None:
        async with world.open(world.settings(mode="none")) as gateway, gateway.client() as client:
            page = await client.get("/docs")
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            [style] = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
            assert page.headers["content-security-policy"] == (
                f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'"
            )
            assert "<script" not in page.text
            assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", page.text)
            for path, operations in gateway.app.openapi()["paths"].items():
                assert f"<code>{path}</code>" in page.text
                assert all(operation["summary"] in page.text for operation in operations.values())
            links = set(re.findall(r'href="#(\w+)"', page.text))
            assert len(links) > 10
            assert links <= set(re.findall(r'id="(\w+)"', page.text))
            head = await client.head("/docs")
            assert (head.status_code, head.headers["x-frame-options"]) == (200, "DENY")
            assert (await client.get("/redoc")).status_code == 404

    asyncio.run(scenario())


def test_a_gateway_that_never_opened_serves_no_request(world: World) -> None:
    async def scenario() -> None:
        async with world.open() as gateway:
            never_opened = create_app(lambda: contextlib.nullcontext(gateway.services))
            async with Open(never_opened, gateway.services, gateway.desk).client() as client:
                answer = await client.get("/runs")
                assert answer.status_code == 500
                assert answer.headers["x-content-type-options"] == "nosniff"

    asyncio.run(scenario())

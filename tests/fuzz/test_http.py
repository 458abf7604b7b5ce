"""The HTTP surface: every request of any client gets an answer soon, and never an internal error."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.bootstrap.gateway import open_key_service
from pyoco_server.settings import Settings
from tests.adapters.real_nats import NatsServer
from tests.fuzz.bounds import examples
from tests.fuzz.documents import damaged
from tests.fuzz.requests import Request, requests
from tests.gateway.auth.routes import GRAPH, OPEN, ROWS, every_route
from tests.gateway.stand import Stand, settings_for

LONGEST_SEC: Final = 15.0
NEVER: Final = f"pyoco_k{'0' * 16}_{'0' * 64}"


class Surface(NamedTuple):
    """A gateway, a client, and a run and an execution to which requests refer."""

    client: httpx.Client
    stand: Stand
    ids: dict[str, str]


def _surface(stand: Stand, client: httpx.Client) -> Surface:
    run_id = client.post("/runs", json={"flow_name": "f", "tag": "no-worker"}).json()["run_id"]
    client.put("/graphs/g", json=GRAPH).raise_for_status()
    execution_id = client.post("/executions", json={"graphId": "g"}).json()["executionId"]
    client.post(f"/executions/{execution_id}/start").raise_for_status()
    return Surface(client, stand, {"{run_id}": run_id, "{execution_id}": execution_id})


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
def open_surface(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surface]:
    """A gateway without authentication."""
    settings = settings_for(nats.url, tmp_path_factory.mktemp("open"))
    with Stand(settings, workers=0) as stand, stand.client() as client:
        yield _surface(stand, client)


@pytest.fixture(scope="module")
def guarded(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A gateway that requires a key."""
    given = {"PYOCO_HTTP_AUTH_MODE": "api_key", "PYOCO_AUTH_PEPPER": "a pepper of the tests"}
    with Stand(settings_for(nats.url, tmp_path_factory.mktemp("guarded"), **given), workers=0) as stand:
        yield stand


@pytest.fixture(scope="module")
def guarded_surface(guarded: Stand) -> Iterator[Surface]:
    """A client with a key for all scopes."""
    with guarded.client(headers={"X-API-Key": asyncio.run(_issued(guarded.settings))}) as client:
        yield _surface(guarded, client)


@pytest.fixture(scope="module")
def stranger(guarded: Stand) -> Iterator[Surface]:
    """A client without a key."""
    with guarded.client() as client:
        yield Surface(client, guarded, {})


async def _issued(settings: Settings) -> str:
    async with open_key_service(settings) as desk:
        return (await desk.create("acme", scopes=tuple(KeyScope))).text


def _ask(surface: Surface, request: Request, **headers: str) -> int:
    """Send it, and hold the answer against what every answer must be; its status."""
    path = request.path
    for name, known in surface.ids.items():
        path = path.replace(name, known)
    url = f"{path}?{urlencode(request.query)}" if request.query else path
    sent: Any = {**request.headers, **headers}
    with surface.client.stream(request.route[0], url, content=request.body, headers=sent) as answer:
        assert answer.status_code < 500, f"{answer.status_code} {request}"
        if "text/event-stream" in answer.headers.get("content-type", ""):
            return answer.status_code  # it goes on for as long as it was asked to
        body = answer.read()
    assert answer.elapsed.total_seconds() < LONGEST_SEC, request
    if answer.status_code >= 400 and request.route[0] != "HEAD" and ROWS[request.route].scope is not OPEN:
        assert answer.json()["error"]["err_id"].startswith("ERR-PYOCO-"), f"{body!r} {request}"
    return answer.status_code


def test_every_route_is_asked_for(open_surface: Surface) -> None:
    assert set(every_route(open_surface.stand.app)) == set(ROWS)


@given(request_=requests())
@examples(150)
def test_any_request_to_an_open_gateway_is_answered(open_surface: Surface, request_: Request) -> None:
    assert _ask(open_surface, request_) not in {401, 403}


@given(request_=requests())
@examples(80)
def test_any_request_with_a_key_is_answered(guarded_surface: Surface, request_: Request) -> None:
    assert _ask(guarded_surface, request_) != 401


@given(request_=requests(), key=st.sampled_from([None, "", "x", NEVER, NEVER.upper(), "\xff", "a" * 5_000]))
@examples(60)
def test_any_request_without_a_valid_key_is_refused(stranger: Surface, request_: Request, key: str | None) -> None:
    headers: Any = {} if key is None else {"X-API-Key": key.encode("latin-1")}
    status = _ask(stranger, request_, **headers)
    assert ROWS[request_.route].scope is OPEN or _leads_elsewhere(request_) or status in {401, 403}


def _leads_elsewhere(request: Request) -> bool:
    """Is the path, read as a path, one of those that are open?"""
    return request.path.partition("?")[0] in {"/", "/health", "/health/ready"}


RAW = (
    (
        b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"
        b'{"flow_name":"f"}'
    ),
    b"GET /runs?limit=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b'POST /runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"flo\r\n0\r\n\r\n',
)


@given(data=damaged(RAW))
@examples(25)
def test_malformed_http_does_no_harm(open_surface: Surface, data: bytes) -> None:
    at = urlsplit(open_surface.stand.url)
    with socket.create_connection((at.hostname or "", at.port or 0), timeout=LONGEST_SEC) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)
    assert not answer.startswith(b"HTTP/1.1 5"), answer
    assert open_surface.client.get("/health").status_code == 200

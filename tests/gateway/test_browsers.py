"""Requests that a foreign page makes a browser send reach no route; programs and the dashboard are not affected."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import APIRouter

from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.gateway.middleware.browsers import SAFE_METHODS
from pyoco_server.logs.line_limit import MOST_LINES
from tests.adapters.real_nats import NatsServer
from tests.gateway.auth.routes import CHANGES, KNOWN, READS, ROWS, Row, every_route, filled, filled_body
from tests.gateway.auth.test_every_route import error
from tests.gateway.stand import Stand, check_error, settings_for, unique

EVIL = "http://evil.example"
YAML = b"version: 1\nflow:\n  graph: |\n    a\ntasks:\n  a: {callable: 'x:y'}\n"
FOREIGN = {
    "a foreign origin": {"Origin": EVIL},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "no origin of its own": {"Origin": "null"},
    "two origins": [("Origin", "{url}"), ("Origin", EVIL)],
    "an origin that ends like ours": {"Origin": "{url}.evil.example"},
    "an origin with our name as its user": {"Origin": "http://{netloc}@evil.example"},
    "cross-site": {"Sec-Fetch-Site": "cross-site"},
    "cross-site, and says that it is ours": {"Sec-Fetch-Site": "cross-site", "Origin": "{url}"},
    "same-site without an origin": {"Sec-Fetch-Site": "same-site"},
    "same-site with another origin": {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"},
    "same-origin with another origin": {"Sec-Fetch-Site": "same-origin", "Origin": EVIL},
    "an unknown word": {"Sec-Fetch-Site": "elsewhere"},
}
OWN: dict[str, dict[str, str]] = {
    "a program": {},
    "our page": {"Origin": "{url}", "Sec-Fetch-Site": "same-origin"},
    "our page in an old browser": {"Origin": "{url}"},
    "our page behind a proxy with TLS": {"Origin": "https://{netloc}"},
    "a user": {"Sec-Fetch-Site": "none"},
}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
EMBEDDED = {
    "image": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    "frame": {**LINK, "Sec-Fetch-Dest": "iframe"},
    "event source": {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    "another port of this machine": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
}


def headers_of(stand: Stand, given: Any) -> list[tuple[str, str]]:
    netloc = urlsplit(stand.url).netloc
    pairs = given.items() if isinstance(given, dict) else given
    return [(name, value.format(url=stand.url, netloc=netloc)) for name, value in pairs]


@pytest.mark.parametrize("sent", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_page_submits_nothing(stand: Stand, client: httpx.Client, sent: Any) -> None:
    tag, headers = unique("foreign"), headers_of(stand, sent)
    form = {"flow_name": "main", "tag": tag}
    answer = client.post("/runs/yaml", data=form, files={"workflow": ("flow.yaml", YAML)}, headers=headers)
    check_error(answer, 403, "ERR-PYOCO-0130")
    assert "PYOCO_HTTP_ALLOWED_ORIGINS" in answer.json()["detail"]
    check_error(client.post("/runs", json={"flow_name": "f", "tag": tag}, headers=headers), 403, "ERR-PYOCO-0130")
    assert client.get("/runs", params={"tag": tag}).json() == []


@pytest.mark.parametrize("sent", OWN.values(), ids=OWN.keys())
def test_the_dashboard_and_programs_submit(stand: Stand, client: httpx.Client, sent: dict[str, str]) -> None:
    answer = client.post("/runs", json={"flow_name": "hello"}, headers=headers_of(stand, sent))
    assert answer.status_code == 200, answer.text


def asked(client: httpx.Client, method: str, path: str, row: Row, headers: dict[str, str]) -> httpx.Response:
    body: dict[str, Any] = {"json": filled_body(row.json, "x"), "data": row.form, "files": row.files}
    return client.request(method, filled(path, sequence="1"), headers=headers, params=row.query, **body)


def test_each_route_refuses_foreign_origins_and_hosts_as_its_row_says(stand: Stand, client: httpx.Client) -> None:
    for method, path in every_route(stand.app):
        row, where = ROWS[method, path], (method, path)
        assert (row.origin is READS) == (method in SAFE_METHODS), "a GET changes nothing"
        refused = [*EMBEDDED.values()]
        if row.origin is CHANGES:
            refused += [{"Origin": EVIL}, {"Sec-Fetch-Site": "cross-site"}, LINK]
        for sent in refused:
            assert error(asked(client, method, path, row, sent)) == (403, _id("0130", method)), where
        assert row.host is KNOWN
        assert error(asked(client, method, path, row, {"Host": "evil.example"})) == (403, _id("0131", method)), where
        if row.origin is READS:
            for sent in (LINK, {}):
                assert asked(client, method, path, row, sent).status_code != 403, where


def _id(number: str, method: str) -> str | None:
    return None if method == "HEAD" else f"ERR-PYOCO-{number}"


def test_a_new_route_is_closed_to_foreign_pages_and_needs_a_row(nats: NatsServer, tmp_path: Path) -> None:
    with Stand(settings_for(nats.url, tmp_path), workers=0) as stand, stand.client() as client:
        nested = APIRouter(prefix="/new")

        @nested.post("/thing")
        async def thing() -> str:
            return "open to all?"

        stand.app.include_router(nested)
        assert set(every_route(stand.app)) - ROWS.keys() == {("POST", "/new/thing")}
        assert client.post("/new/thing").status_code == 200
        check_error(client.post("/new/thing", headers={"Origin": EVIL}), 403, "ERR-PYOCO-0130")
        check_error(client.post("/new/thing", headers={"Host": "evil.example"}), 403, "ERR-PYOCO-0131")
    with pytest.raises(TypeError, match="missing 3 required positional arguments: 'origin', 'host', and 'tenant'"):
        Row(KeyScope.RUNS)  # type: ignore[call-arg]  # what is tested


@pytest.mark.parametrize("sent", EMBEDDED.values(), ids=EMBEDDED.keys())
@pytest.mark.parametrize("path", ["/", "/runs", "/runs/~/watch", "/health", "/nothing"])
def test_a_foreign_page_embeds_nothing(client: httpx.Client, path: str, sent: dict[str, str]) -> None:
    check_error(client.get(path, headers=sent), 403, "ERR-PYOCO-0130")


def test_a_link_on_a_foreign_page_opens_the_dashboard(client: httpx.Client) -> None:
    assert client.get("/", headers=LINK).status_code == 200
    check_error(client.post("/runs", json={"flow_name": "hello"}, headers=LINK), 403, "ERR-PYOCO-0130")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.1.2.3",
        "0.0.0.0",  # noqa: S104 an address that leads to this machine
        "[::2]",
        "",
        ":{port}",
        "a b",
        "127.0.0.1@evil.example",
        "evil.example,127.0.0.1",
        "localhost:x",
        "[::1",
    ],
)
def test_another_name_for_this_machine_is_not_served(
    stand: Stand, client: httpx.Client, method: str, host: str
) -> None:
    sent = {"Host": host.format(port=urlsplit(stand.url).port)}
    body: dict[str, Any] = {"json": {"flow_name": "hello"}} if method == "POST" else {}
    for path in ("/runs", "/health", "/"):
        answer = client.request(method, path, headers=sent, **body)
        check_error(answer, 403, "ERR-PYOCO-0131")
        assert "PYOCO_HTTP_ALLOWED_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "127.8.8.8:8000", "[::1]", "[::1]:8000"])
def test_names_of_this_machine_are_served(client: httpx.Client, host: str) -> None:
    assert client.get("/runs", params={"limit": 1}, headers={"Host": host}).status_code == 200


def test_two_hosts_are_none_and_a_program_may_send_none(stand: Stand) -> None:
    def asked(*lines: str) -> bytes:
        at = urlsplit(stand.url)
        with socket.create_connection((at.hostname or "", at.port or 0), timeout=10) as connection:
            connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    assert b"ERR-PYOCO-0131" in asked("GET /runs?limit=1 HTTP/1.1", "Host: 127.0.0.1", "Host: evil.example")
    assert asked("GET /runs?limit=1 HTTP/1.0").startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def proxied(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A gateway behind a proxy, without keys."""
    settings = settings_for(
        nats.url,
        tmp_path_factory.mktemp("proxied"),
        PYOCO_HTTP_ALLOWED_HOSTS="gateway.internal, 10.1.2.3",
        PYOCO_HTTP_ALLOWED_ORIGINS="https://Pyoco.Example.org/",
    )
    with Stand(settings, workers=0) as made:
        yield made


def test_configured_names_and_origins_are_served(proxied: Stand) -> None:
    with proxied.client() as client:
        for host in ("gateway.internal:8000", "10.1.2.3", "pyoco.example.org", "127.0.0.1"):
            assert client.get("/runs", params={"limit": 1}, headers={"Host": host}).status_code == 200
        check_error(client.get("/runs", headers={"Host": "evil.example"}), 403, "ERR-PYOCO-0131")
        for site in ("same-origin", "cross-site"):
            sent = {"Origin": "https://pyoco.example.org", "Sec-Fetch-Site": site}
            assert client.post("/runs", json={"flow_name": "f"}, headers=sent).status_code == 200
        for origin in ("http://pyoco.example.org", "https://pyoco.example.org:8443", "https://x.pyoco.example.org"):
            answer = client.post("/runs", json={"flow_name": "f"}, headers={"Origin": origin})
            check_error(answer, 403, "ERR-PYOCO-0130")


def test_a_proxy_may_add_the_default_port(proxied: Stand) -> None:
    with proxied.client() as client:
        sent = {"Host": "gateway.internal:443", "Origin": "https://gateway.internal"}
        assert client.post("/runs", json={"flow_name": "f"}, headers=sent).status_code == 200
        sent["Origin"] = "http://gateway.internal"
        check_error(client.post("/runs", json={"flow_name": "f"}, headers=sent), 403, "ERR-PYOCO-0130")


TEXTS = (
    "text/plain",
    "text/plain; charset=utf-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
)


@pytest.mark.parametrize("kind", TEXTS)
def test_a_type_that_forms_send_is_refused_where_json_is_taken(stand: Stand, client: httpx.Client, kind: str) -> None:
    for method, path in every_route(stand.app):
        if method in {"POST", "PUT", "PATCH", "DELETE"} and ROWS[method, path].files is None:
            answer = client.request(method, filled(path), content=b"{}", headers={"Content-Type": kind})
            error = check_error(answer, 422, "ERR-PYOCO-0019" if path.startswith("/workers") else "ERR-PYOCO-0002")
            assert "application/json" in error["details"]["problems"][0]["msg"], path


def test_only_multipart_is_taken_where_forms_are(client: httpx.Client) -> None:
    for path in ("/runs/yaml", "/wheels"):
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = client.post(path, content=b"flow_name=x", headers={"Content-Type": kind})
            error = check_error(answer, 422, "ERR-PYOCO-0002")
            assert "multipart/form-data" in error["details"]["problems"][0]["msg"]


def test_an_attack_does_not_fill_the_log(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="pyoco_server.gateway.middleware.browsers")
    for _ in range(MOST_LINES + 2):
        client.get("/health", headers={"Host": "evil.example"})
    lines = [record for record in caplog.records if record.__dict__.get("action") == "request_refused"]
    assert len(lines) == MOST_LINES + 2
    assert sum(line.levelno >= logging.WARNING for line in lines) <= MOST_LINES

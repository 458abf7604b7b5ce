"""Clients without an address or a key use those of the environment."""

import asyncio
import ssl

import pytest

from pyoco_server.client import AsyncClient, Client
from pyoco_server.client.config import server_url, trusted
from pyoco_server.errors import InvalidInputError
from tests.client.scripted_gateway import ScriptedGateway, says

ELSEWHERE = "http://127.0.0.1:1"


def test_the_default_address_is_this_machine() -> None:
    with Client() as client:
        assert client.server == "http://127.0.0.1:8000"
    assert AsyncClient().server == "http://127.0.0.1:8000"


def test_the_environment_says_where_and_who(gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOCO_SERVER_URL", gateway.url)
    monkeypatch.setenv("PYOCO_API_KEY", "from-environment")
    gateway.on("GET", "/runs", says([]))

    async def listed() -> None:
        async with AsyncClient() as client:
            await client.list()

    with Client() as client:
        client.list()
    asyncio.run(listed())
    assert [request.headers["x-api-key"] for request in gateway.requests] == ["from-environment"] * 2


def test_an_argument_wins_over_the_environment(gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOCO_SERVER_URL", ELSEWHERE)
    monkeypatch.setenv("PYOCO_API_KEY", "from-environment")
    gateway.on("GET", "/runs", says([]))
    with Client(gateway.url, api_key="given") as client:
        client.list()
    with Client(gateway.url, api_key="") as client:
        client.list()
    assert [request.headers.get("x-api-key") for request in gateway.requests] == ["given", None]


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOCO_SERVER_URL", "")
    monkeypatch.setenv("PYOCO_API_KEY", "")
    with Client() as client:
        assert client.server == "http://127.0.0.1:8000"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:8000", "ftp://x", "http://", "http://x?y=1", "http://[x"])
def test_an_address_that_is_not_valid_is_an_error_with_its_source(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client] | type[AsyncClient], address: str
) -> None:
    monkeypatch.setenv("PYOCO_SERVER_URL", address)
    with pytest.raises(InvalidInputError, match=r"^PYOCO_SERVER_URL: '.*' (is not a URL|has a query)"):
        kind()
    with pytest.raises(InvalidInputError, match=r"^server: '.*' (is not a URL|has a query)"):
        kind(address)
    with pytest.raises(InvalidInputError, match=r"^server: '' is not a URL such as http"):
        kind("")


def test_a_key_that_cannot_be_sent_is_an_error_with_its_source_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOCO_API_KEY", "secret\nkey")
    with pytest.raises(InvalidInputError, match=r"^PYOCO_API_KEY: must be printable ASCII") as error:
        Client()
    assert "secret" not in str(error.value)


def test_certificates_are_loaded_only_for_an_address_that_needs_them() -> None:
    assert trusted(server_url("HTTPS://gateway.example")) is True
    none_loaded = trusted(server_url("http://gateway.example"))
    assert isinstance(none_loaded, ssl.SSLContext)
    assert (none_loaded.verify_mode, none_loaded.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert none_loaded.get_ca_certs() == []

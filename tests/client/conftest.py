"""A scripted gateway, a client of it, and an environment without the variables of a developer."""

from collections.abc import Iterator

import pytest

from pyoco_server.client import Client
from tests.client.scripted_gateway import ScriptedGateway, scripted_gateway


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the developer's variables, which must not change a result."""
    for name in ("PYOCO_SERVER_URL", "PYOCO_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def started_gateway() -> Iterator[ScriptedGateway]:
    with scripted_gateway() as running:
        yield running


@pytest.fixture
def gateway(started_gateway: ScriptedGateway) -> ScriptedGateway:
    started_gateway.reset()
    return started_gateway


@pytest.fixture
def client(gateway: ScriptedGateway) -> Iterator[Client]:
    with Client(gateway.url, timeout=10, poll=0.05) as opened:
        yield opened

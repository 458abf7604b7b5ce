"""Shared fixtures: one NATS server, one gateway and one worker for all tests that leave them as they are."""

from collections.abc import Iterator

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, settings_for


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The shared server. Tests that stop it use ``own_nats``."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for one test, which may stop it and start it again."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="session")
def stand(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The shared gateway, with one worker."""
    settings = settings_for(nats.url, tmp_path_factory.mktemp("data"), PYOCO_WATCH_MAX_PER_CLIENT="50")
    with Stand(settings) as made:
        yield made


@pytest.fixture(scope="module")
def empty_stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A gateway and a worker on a server of their own, for tests that read or count all runs."""
    with (
        NatsServer(tmp_path_factory.mktemp("nats")) as server,
        Stand(settings_for(server.url, tmp_path_factory.mktemp("data"))) as made,
    ):
        yield made


@pytest.fixture
def client(stand: Stand) -> Iterator[httpx.Client]:
    """A client of the shared gateway."""
    with stand.client() as made:
        yield made

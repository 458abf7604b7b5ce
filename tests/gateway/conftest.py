"""One NATS, one gateway and one worker for all tests that leave them alone."""

from collections.abc import Iterator

import httpx
import pytest

from tests.adapters.nats_server import NatsServer
from tests.gateway.stand import Stand, settings_for


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The shared server. Tests must not stop it; ``own_nats`` is for those."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for one test, to be killed and started again."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def stand(nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The shared gateway, with one worker."""
    settings = settings_for(nats.url, tmp_path_factory.mktemp("data"), PYOCO_WATCH_MAX_PER_CLIENT="50")
    with Stand(settings) as made:
        yield made


@pytest.fixture
def client(stand: Stand) -> Iterator[httpx.Client]:
    """Somebody who asks the shared gateway."""
    with stand.client() as made:
        yield made

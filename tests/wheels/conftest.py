"""One NATS and one gateway for all tests of wheels; every test has packages of its own."""

import itertools
from collections.abc import Iterator

import httpx
import pytest

from tests.adapters.conftest import Backend, JetStream, backend, jetstream, nats_server
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, settings_for

__all__ = ["Backend", "JetStream", "backend", "jetstream", "nats_server"]

MAX_BYTES = 3_000_000
_numbers = itertools.count(1)


@pytest.fixture(scope="module")  # what one file leaves in the registry is not what another's workers install
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The gateway, without a worker."""
    data = tmp_path_factory.mktemp("data")
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        settings = settings_for(server.url, data, PYOCO_WHEEL_MAX_BYTES=str(MAX_BYTES))
        with Stand(settings, workers=0) as made:
            yield made


@pytest.fixture
def client(stand: Stand) -> Iterator[httpx.Client]:
    """A client of the gateway."""
    with stand.client() as made:
        yield made


@pytest.fixture
def package() -> str:
    """The name of a package that no other test uses."""
    return f"demo{next(_numbers)}"

"""One nats-server for all tests of keys and tenants; every test has names of its own on it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.real_nats import NatsServer
from tests.gateway.auth.world import World

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def auth_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The shared server. Tests must not stop it."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def world(auth_nats: NatsServer, tmp_path: Path) -> World:
    """A platform that asks for keys."""
    return World(auth_nats.url, f"a{next(_numbers)}", tmp_path)


@pytest.fixture
def own_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, NatsServer]]:
    """A platform on a server that may be stopped."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield World(server.url, "own", tmp_path_factory.mktemp("gateway")), server

"""A reader, with a NATS server beside them that they start by hand where a page says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.real_nats import NatsServer
from tests.docs.reader import Reader


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """The NATS server of the page on production."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def reader(tmp_path: Path, nats: NatsServer) -> Iterator[Reader]:
    """A reader with an empty folder."""
    found = Reader(tmp_path, PYOCO_NATS_URL=nats.url)
    try:
        yield found
    finally:
        found.leave()

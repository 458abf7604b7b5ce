"""One engine for all tests of a module, in a directory of its own: pyoco makes ``artifacts`` wherever it runs."""

import contextlib
from collections.abc import Iterator

import pytest

from pyoco_server import Engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("run")
    with contextlib.chdir(directory), Engine(artifacts=directory / "ours") as made:
        yield made

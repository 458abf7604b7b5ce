"""A NATS server for each test, and gateways as users of 0.5.1 start them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import Served, clean_environment, free_port, until_healthy


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@contextlib.contextmanager
def uvicorn_factory(directory: Path, nats_url: str, *arguments: str, **variables: str) -> Iterator[Served]:
    """``uvicorn pyoco_server.http_api:create_app --factory``, listening until this is left."""
    port, output = free_port(), directory / "uvicorn.log"
    command = [sys.executable, "-m", "uvicorn", "pyoco_server.http_api:create_app", "--factory", "--port", str(port)]
    environment = clean_environment(PYOCO_NATS_URL=nats_url, PYOCO_LOAD_DOTENV="0", **variables)
    with output.open("wb") as writing:
        process = subprocess.Popen(  # noqa: S603 our own command
            [*command, *arguments], cwd=directory, env={**os.environ, **environment}, stdout=writing, stderr=writing
        )
    served = Served(process, f"http://127.0.0.1:{port}", output)
    try:
        until_healthy(served)
        yield served
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

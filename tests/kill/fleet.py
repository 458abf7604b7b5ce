"""A server of our own with workers on it: everything there is in one test."""

import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from pyoco_server import bootstrap
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.bootstrap import Platform
from pyoco_server.settings import Settings, load_settings
from tests.kill.crew import ENDED, HASTY, ME, TAG, Crew, Snapshot
from tests.kill.processes import WorkerProcess, eventually

__all__ = [
    "ENDED",
    "FULL",
    "ME",
    "TAG",
    "Fleet",
    "Snapshot",
    "WorkerProcess",
    "chance",
    "eventually",
    "fleet",
    "report",
    "scaled",
    "timeout",
]

FULL: Final = os.environ.get("PYOCO_KILL_SCALE") == "full"

timeout = pytest.mark.timeout(1_800 if FULL else 120)


def scaled(small: int, full: int) -> int:
    """How many: few every day, many on demand (PYOCO_KILL_SCALE=full)."""
    return full if FULL else small


def chance() -> random.Random:
    """Chance with a seed that can be given again (PYOCO_KILL_SEED)."""
    seed = int(os.environ.get("PYOCO_KILL_SEED") or random.randrange(1_000_000))
    sys.stdout.write(f"PYOCO_KILL_SEED={seed}\n")
    return random.Random(seed)


def report(figures: str) -> None:
    """Say what was measured; shown with ``pytest -rP``."""
    sys.stdout.write(f"{figures}\n")


class Fleet(Crew):
    """A crew with a server of its own."""

    def __init__(
        self, server: NatsServer, platform: Platform, settings: Settings, variables: Mapping[str, str], home: Path
    ) -> None:
        super().__init__(platform, settings, variables, home)
        self.server = server

    async def kill_server(self) -> None:
        """SIGKILL the server, and wait until it is back."""
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        async def is_back() -> bool:
            return self.server.pid not in (None, pid) and self.platform.connection.is_connected

        await eventually(is_back, "the server is back")


@contextlib.asynccontextmanager
async def fleet(home: Path, **variables: str) -> AsyncIterator[Fleet]:
    """A server of the test's own; ``variables`` are settings of all processes."""
    async with NatsServer(home / "nats") as server:
        everywhere = {**HASTY, **variables, "PYOCO_NATS_URL": server.url, "PYOCO_LOAD_DOTENV": "0"}
        settings = load_settings(everywhere).settings
        async with bootstrap.open_platform(settings, name="tester") as platform:
            made = Fleet(server, platform, settings, everywhere, home)
            try:
                yield made
            finally:
                await made.end_all()

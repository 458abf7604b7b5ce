"""Ours as it is in production: a gateway with its embedded NATS server and workers, each a process of its own."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.peers.stand import NATS, START_SEC, Stand, answering, free_ports, listening, standing
from pyoco_server.adapters.jetstream.durability.policy import Durability

BIN = Path(sys.executable).parent
GATEWAY = "gateway"
WORKER = "worker"
IN_FLIGHT = 16
STOP_SEC = 60.0
QUIET = {"PYOCO_LOG_LEVEL": "ERROR", "PYOCO_LOAD_DOTENV": "0"}


class Site:
    """One gateway, and what is started beside it."""

    def __init__(
        self, stand: Stand, *, name: str = "", durability: Durability = "sync", env: Mapping[str, str] | None = None
    ) -> None:
        """Start the gateway, and return when it answers. ``name`` distinguishes several sites on one stand."""
        self.stand = stand
        self.port, self._nats_port = free_ports(2)
        self.nats_url = f"nats://127.0.0.1:{self._nats_port}"
        self.data = stand.directory / f"data{name}"
        self._name = name
        self._env = {**QUIET, **(env or {})}
        self.durability = durability
        self.start()

    def start(self, limit_sec: float = START_SEC) -> None:
        """Start the gateway once more, where it was."""
        role, ports = GATEWAY + self._name, ["--port", str(self.port), "--nats-client-port", str(self._nats_port)]
        env = {**self._env, "PYOCO_DATA_DIR": str(self.data), "PYOCO_DURABILITY": self.durability}
        self.stand.start(role, [str(BIN / "pyoco-server"), "up", *ports], env=env)
        self.stand.wait(role, answering(self.port, "/health"), limit_sec)
        self.stand.wait(role, listening(self._nats_port))

    def stop(self) -> None:
        """Stop the gateway, and with it the NATS server."""
        self.stand.end(GATEWAY + self._name, STOP_SEC)

    def forget_index(self) -> None:
        """While it is stopped: let it find what is stored without the index it made of it."""
        for file in self.data.glob("index-*.sqlite*"):
            file.unlink()

    def start_worker(
        self, role: str = WORKER, *, concurrency: int = IN_FLIGHT, env: Mapping[str, str] | None = None
    ) -> None:
        """One more worker, with the benchmarks' flows."""
        flows = ["--flows", "bench.flows", "--concurrency", str(concurrency)]
        worker = [str(BIN / "pyoco-worker"), "--nats-url", self.nats_url, "--worker-id", role, *flows]
        self.stand.start(role + self._name, worker, env={**self._env, **(env or {})})


class Meter:
    """What the processes of a stand use, from one moment on."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._sec = stand.processor_sec()
        self._mib = stand.memory_mib()
        self._began = time.perf_counter()

    def used_ms(self) -> dict[str, float]:
        """Milliseconds of processor time by role."""
        return {role: (sec - self._sec.get(role, 0.0)) * 1e3 for role, sec in self._stand.processor_sec().items()}

    def used_percent(self) -> float:
        """Of one core, all roles together."""
        return sum(self.used_ms().values()) / (time.perf_counter() - self._began) / 10

    def grown_kib(self) -> dict[str, float]:
        """Memory by role that was not held then."""
        return {role: (mib - self._mib.get(role, 0.0)) * 1024 for role, mib in self._stand.memory_mib().items()}


@contextlib.contextmanager
def stand_here() -> Iterator[Stand]:
    """A stand in a directory of its own; both are gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="pyoco-bench-", ignore_cleanup_errors=True) as name,
        standing(Path(name)) as stand,
    ):
        yield stand


@contextlib.contextmanager
def one_site(
    *,
    durability: Durability = "sync",
    workers: int = 1,
    concurrency: int = IN_FLIGHT,
    env: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """A gateway and so many workers."""
    with stand_here() as stand:
        site = Site(stand, durability=durability, env=env)
        for number in range(1, workers + 1):
            site.start_worker(WORKER if number == 1 else f"{WORKER}-{number}", concurrency=concurrency)
        yield site


def by_part(figures: Mapping[str, float]) -> dict[str, float]:
    """The same by part: workers are counted together."""
    parts: dict[str, float] = {}
    for role, figure in figures.items():
        part = WORKER if role.startswith(WORKER) else role
        parts[part] = parts.get(part, 0.0) + figure
    return parts


__all__ = ["BIN", "GATEWAY", "IN_FLIGHT", "NATS", "WORKER", "Meter", "Site", "by_part", "one_site", "stand_here"]

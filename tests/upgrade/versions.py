"""Starts programs of either version as processes, on one NATS."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import clean_environment, free_port
from tests.plain_http import NO_TLS
from tests.upgrade.flows import CALLS

ROOT: Final = Path(__file__).parents[2]
CURRENT: Final = ROOT / "src"
FROM: Final = os.environ.get("PYOCO_UPGRADE_FROM", "HEAD~1")
"""The commit to upgrade from."""
PATIENCE_SEC: Final = 90.0
SETTINGS: Final = {
    "PYOCO_CONSUMER_ACK_WAIT_SEC": "2",
    "PYOCO_ACK_PROGRESS_INTERVAL_SEC": "0.5",
    "PYOCO_CONSUMER_MAX_DELIVER": "50",
    "PYOCO_RUN_HEARTBEAT_INTERVAL_SEC": "0.5",
    "PYOCO_CANCEL_GRACE_PERIOD_SEC": "3",
    "PYOCO_WORKER_STOP_TIMEOUT_SEC": "0.5",
    "PYOCO_LOAD_DOTENV": "0",
}


def checked_out(directory: Path) -> Path:
    """Return the sources of the version to upgrade from; skip the test if they are not available."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{FROM}^{{commit}}")
    if commit.returncode != 0:
        pytest.skip(f"there is no commit {FROM} here to upgrade from (is this a shallow clone, or no clone at all?)")
    archive = _git("archive", commit.stdout.decode().strip(), "src")
    assert archive.returncode == 0, archive.stderr
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(directory, filter="data")
    _check_it_runs(directory / "src")
    return directory / "src"


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(  # noqa: S603 arguments of our own
            ["git", "-C", str(ROOT), *arguments],  # noqa: S607 whichever git there is
            capture_output=True,
            check=False,
            timeout=30,
        )
    except FileNotFoundError:
        pytest.skip("git is needed to get at the version to upgrade from")


def _check_it_runs(source: Path) -> None:
    """Check that Python imports this version, and that its dependencies are installed."""
    look = "import pyoco_server.cli.server, pyoco_server.cli.worker.main; print(pyoco_server.__file__)"
    found = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-c", look], env=_environment(source), capture_output=True, text=True, check=False, timeout=60
    )
    if "ModuleNotFoundError" in found.stderr:
        pytest.skip(f"{FROM} needs packages that are not installed: {found.stderr.splitlines()[-1]}")
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).is_relative_to(source)


def _environment(source: Path, **variables: str) -> dict[str, str]:
    return clean_environment(**SETTINGS, PYTHONPATH=str(source), PYOCO_CALLABLES="json:dumps", **variables)


class Program:
    """A gateway or a worker."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", output: Path, is_ready: Callable[[str], bool]
    ) -> None:
        self.name = name
        self.process = process
        self._output = output
        self._is_ready = is_ready

    def stop(self, number: signal.Signals) -> None:
        """End it, and come back when it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(20)

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def ready(self) -> "Program":
        """Come back when it serves; it must not die before."""
        deadline = time.monotonic() + PATIENCE_SEC
        while not self._is_ready(self.said()):
            assert self.process.poll() is None, f"{self.name} died\n{self.said()}"
            assert time.monotonic() < deadline, f"{self.name} does not serve\n{self.said()}"
            time.sleep(0.02)
        return self


class Site:
    """One NATS and the programs that use it; ``close`` ends them all."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for folder in ("nats", "calls"):
            (home / folder).mkdir()
        self.nats = NatsServer(home / "nats")
        self.nats.start()
        self.url = ""
        """Where the newest gateway is."""
        self._programs: list[Program] = []

    def close(self) -> None:
        for program in self._programs:
            program.stop(signal.SIGKILL)
        self.nats.kill()

    def restart_nats(self) -> None:
        """Stop it and start it again on what it has stored."""
        self.nats.kill()
        self.nats.start()

    def gateway(self, source: Path, name: str) -> Program:
        """Start a gateway of this version; its read index is its own."""
        url = f"http://127.0.0.1:{(port := free_port())}"
        command = ["pyoco_server.cli.server", "up", "--port", str(port), "--nats-url", self.nats.url]
        started = self._start(source, name, command, lambda _: answers(f"{url}/health/ready"))
        self.url = url
        return started

    def worker(self, source: Path, name: str, tags: str = "default") -> Program:
        """Start a worker of this version."""
        flows = str(Path(__file__).with_name("flows.py"))
        command = ["pyoco_server.cli.worker", "--worker-id", name, "--tags", tags, "--flows", flows]
        command += ["--nats-url", self.nats.url]
        return self._start(source, name, command, lambda said: '"action": "worker_started"' in said)

    def _start(self, source: Path, name: str, command: list[str], is_ready: Callable[[str], bool]) -> Program:
        output = self.home / f"{name}.log"
        (self.home / name).mkdir()
        variables = {CALLS: str(self.home / "calls"), "PYOCO_DATA_DIR": str(self.home / name / "data")}
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 our own program
                [sys.executable, "-m", *command],
                cwd=self.home / name,
                env=_environment(source, **variables),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._programs.append(Program(name, process, output, is_ready))
        return self._programs[-1]

    # --- Over HTTP ---------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """What the newest gateway answers; it must be content."""
        answer = httpx.request(method, f"{self.url}{path}", timeout=10, verify=NO_TLS, **options)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, flow_name: str, **fields: Any) -> str:
        """Submit a run; its tasks can see which one it is."""
        key = f"{flow_name}-{len([*(self.home / 'calls').iterdir()])}-{time.monotonic_ns()}"
        body = {"flow_name": flow_name, "params": {"run": key}, **fields}
        return str(self.ask("POST", "/runs", json=body)["run_id"])

    def snapshot(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/runs/{run_id}", params={"include": "full"})
        return found

    def until(self, run_id: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait until the predicate holds for the run's snapshot, and return the snapshot."""
        deadline = time.monotonic() + PATIENCE_SEC
        while not holds(found := self.snapshot(run_id)):
            assert time.monotonic() < deadline, f"the expected snapshot never appeared: {found}\n{self._output()}"
            time.sleep(0.05)
        return found

    def calls(self, snapshot: Mapping[str, Any]) -> dict[str, int]:
        """How often each task of a run was called."""
        files = (self.home / "calls").glob(f"{snapshot['params']['run']}.*")
        return {file.suffix[1:]: len(file.read_bytes().splitlines()) for file in files}

    def _output(self) -> str:
        return "\n".join(f"--- {program.name}\n{program.said()[-3_000:]}" for program in self._programs)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, verify=NO_TLS).status_code == 200
    except httpx.TransportError:
        return False

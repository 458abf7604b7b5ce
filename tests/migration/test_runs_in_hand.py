"""Runs of the real 0.5.1 in every state, taken over by this version, and given back to 0.5.1."""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import nats
import pytest

from tests.cli.serving import clean_environment, command, free_port
from tests.migration.flows_051 import CALLS, OPEN
from tests.migration.installed_051 import install_051
from tests.plain_http import NO_TLS
from tests.upgrade.versions import CURRENT, SETTINGS, Program, Site, answers

RESOLVER = f"{Path(__file__).with_name('flows_051.py')}:resolve"
pytestmark = pytest.mark.timeout(900)  # the first test waits until 0.5.1 is installed


class Both(Site):
    """Programs of 0.5.1 and of this version on one NATS."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.bin = install_051(home / "old")

    def old_gateway(self, name: str) -> Program:
        url = f"http://127.0.0.1:{(port := free_port())}"
        started = self._begin(name, "pyoco-server", "up", "--port", str(port), is_up=lambda _: answers(f"{url}/health"))
        self.url = url
        return started

    def old_worker(self, name: str, tags: str = "default") -> Program:
        arguments = ["--worker-id", name, "--tags", tags, "--flow-resolver", RESOLVER]
        return self._begin(name, "pyoco-worker", *arguments, is_up=lambda _: self._is_known(name))

    def _is_known(self, worker_id: str) -> bool:
        """0.5.1 answers 503 while there is no worker at all."""
        answer = httpx.get(f"{self.url}/workers", timeout=10, verify=NO_TLS)
        return answer.status_code == 200 and any(worker["worker_id"] == worker_id for worker in answer.json())

    def new_worker(self, name: str, tags: str = "default") -> Program:
        arguments = ["--worker-id", name, "--tags", tags, "--flow-resolver", RESOLVER, "--nats-url", self.nats.url]
        program = ["pyoco_server.cli.worker", *arguments]
        return self._start(CURRENT, name, program, lambda said: '"action": "worker_started"' in said)

    def _begin(self, name: str, program: str, *arguments: str, is_up: Callable[[str], bool]) -> Program:
        output = self.home / f"{name}.log"
        variables = {**SETTINGS, CALLS: str(self.home / "calls"), "PYOCO_NATS_URL": self.nats.url}
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 a program of 0.5.1
                [str(self.bin / program), *arguments],
                cwd=self.home,
                env=clean_environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._programs.append(Program(name, process, output, is_up))
        return self._programs[-1]

    def status(self, run_id: str, wanted: str) -> dict[str, object]:
        return self.until(run_id, lambda found: found["status"] == wanted)

    def max_age_of_workers(self) -> float | None:
        async def ask() -> float | None:
            connection = await nats.connect(self.nats.url)
            try:
                return (await connection.jetstream().stream_info("KV_pyoco_workers")).config.max_age
            finally:
                await connection.close()

        return asyncio.run(ask())

    def migrate(self) -> None:
        environment = clean_environment(PYOCO_NATS_URL=self.nats.url, PYOCO_LOAD_DOTENV="0")
        done = subprocess.run(  # noqa: S603 our own command
            command("migrate", "--apply"), env=environment, cwd=self.home, capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    monkeypatch.setenv(CALLS, str(tmp_path / "calls"))
    both = Both(tmp_path)
    yield both
    both.close()


def test_runs_are_taken_over_and_given_back(site: Both) -> None:
    gateway, worker = site.old_gateway("old-gateway").ready(), site.old_worker("old-worker").ready()
    ended = site.submit("short")
    of_old = site.status(ended, "COMPLETED")
    running = site.submit("long")
    site.until(running, lambda found: found["tasks"].get("guarded") == "RUNNING")
    queued = site.submit("short", tag="later")
    assert site.max_age_of_workers() == 15.0
    worker.stop(signal.SIGKILL)
    gateway.stop(signal.SIGINT)

    ours = site.gateway(CURRENT, "new-gateway").ready()
    assert "'pyoco-server migrate --apply' removes the limit" in ours.said()
    site.migrate()
    assert site.max_age_of_workers() == 0.0
    ours.stop(signal.SIGTERM)
    ours = site.gateway(CURRENT, "newer-gateway").ready()
    assert "migrate" not in ours.said()
    assert {run["run_id"] for run in site.ask("GET", "/runs")} == {ended, running, queued}
    shown = site.snapshot(ended)
    assert {name: shown[name] for name in ("status", "tasks", "task_records")} == {
        name: of_old[name] for name in ("status", "tasks", "task_records")
    }
    new_worker = site.new_worker("new-worker", "default,later").ready()
    site.status(queued, "COMPLETED")
    (site.home / "calls" / OPEN).touch()
    taken_over = site.status(running, "COMPLETED")
    assert site.calls(taken_over) == {"begin": 2, "guarded": 2}  # once by each version: 0.5.1 kept no log of it
    mine = site.submit("long")
    assert site.calls(site.status(mine, "COMPLETED")) == {"begin": 1, "guarded": 1}
    waiting = site.submit("short", tag="unserved")
    new_worker.stop(signal.SIGTERM)
    ours.stop(signal.SIGTERM)

    site.old_gateway("old-gateway-again").ready()
    site.old_worker("old-worker-again", "default,unserved").ready()
    for run_id in (ended, running, queued, mine, waiting):
        site.status(run_id, "COMPLETED")
    assert site.calls(site.snapshot(mine)) == {"begin": 1, "guarded": 1}
    again = site.submit("short")
    assert site.calls(site.status(again, "COMPLETED")) == {"begin": 1}
    listed = {entry["worker_id"]: entry["state"] for entry in site.ask("GET", "/workers", params={"scope": "all"})}
    assert listed["new-worker"] == "STOPPED_GRACEFUL"

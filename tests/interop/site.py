"""One NATS with gateways and workers of this version and of the public release 0.5.1 on it, as processes."""

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
from bench.peers.candidate import program
from bench.peers.environments import python_environment
from bench.peers.public_pyoco import REQUIREMENTS
from bench.peers.stand import ROOT, environment

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import clean_environment, free_port
from tests.interop.flows import TRACES
from tests.interop.history import History
from tests.plain_http import NO_TLS

PATIENCE_SEC: Final = 90.0
ENDS: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
_SETTINGS: Final = {"PYOCO_LOAD_DOTENV": "0", "PYOCO_CANCEL_GRACE_PERIOD_SEC": "20"}
_FLOWS: Final = Path(__file__).with_name("flows.py")


def public_release() -> Path:
    """The ``bin`` directory of an environment with the public release, made once."""
    return python_environment("pyoco-0.5.1", REQUIREMENTS)


class Site:
    """All processes on one NATS; ``close`` ends them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.traces = home / "traces"
        for folder in (home / "nats", self.traces):
            folder.mkdir()
        self.nats = NatsServer(home / "nats")
        self.nats.start()
        self.history = History(self.nats.url)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.history.close()
        self.nats.kill()

    # --- Processes ---------------------------------------------------------------------------------------------------

    def gateway(self, name: str) -> str:
        """Start a gateway of this version; where it is."""
        port = free_port()
        self._start(
            name, [*_module("server"), "up", "--port", str(port), "--nats-url", self.nats.url], self._ours(name)
        )
        return self._serving(name, f"http://127.0.0.1:{port}")

    def public_gateway(self, name: str, release: Path) -> str:
        """Start a gateway of the public release; where it is."""
        port = free_port()
        command = [str(release / "pyoco-server"), "up", "--port", str(port), "--nats-url", self.nats.url]
        self._start(name, command, self._public())
        return self._serving(name, f"http://127.0.0.1:{port}")

    def migrate(self) -> None:
        """Change the settings of what the public release created, as the migration page says."""
        subprocess.run(  # noqa: S603 our own program
            [*_module("server"), "migrate", "--apply", "--nats-url", self.nats.url],
            env=clean_environment(**_SETTINGS, PYTHONPATH=str(ROOT / "src")),
            cwd=self.home,
            capture_output=True,
            timeout=60,
            check=True,
        )

    def worker(self, name: str, tags: str = "default") -> None:
        """Start a worker of this version."""
        where = ["--nats-url", self.nats.url, "--flows", str(_FLOWS)]
        self._start(name, [*_module("worker"), "--worker-id", name, "--tags", tags, *where], self._ours(name))
        self._until(lambda: '"action": "worker_started"' in self._said(name), f"{name} works")

    def public_worker(self, name: str, release: Path, tags: str = "default") -> None:
        """Start a worker of the public release, with the one fault mended that stops it on Python 3.11."""
        flows = ["--flow-resolver", "tests.interop.flows:resolve", "--no-wheel-sync"]
        who = ["--worker-id", name, "--tags", tags, "--nats-url", self.nats.url]
        self._start(name, [*program(release, "public_worker"), *who, *flows], self._public())

    def stop(self, name: str) -> None:
        """Ask a program to stop, and come back when it has."""
        process = self._processes.pop(name)
        process.terminate()
        process.wait(20)

    def _ours(self, name: str) -> dict[str, str]:
        data = {"PYOCO_DATA_DIR": str(self.home / name / "data"), TRACES: str(self.traces)}
        return clean_environment(**_SETTINGS, PYTHONPATH=str(ROOT / "src"), **data)

    def _public(self) -> dict[str, str]:
        return environment({**_SETTINGS, "PYOCO_LOG_LEVEL": "ERROR", TRACES: str(self.traces)})

    def _start(self, name: str, command: list[str], variables: Mapping[str, str]) -> None:
        (self.home / name).mkdir()
        with (self.home / f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(  # noqa: S603 our own programs
                command, cwd=self.home / name, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _serving(self, name: str, url: str) -> str:
        self._until(lambda: _answers(f"{url}/health"), f"{name} serves")
        return url

    def _said(self, name: str) -> str:
        code = self._processes[name].poll()
        said = (self.home / f"{name}.log").read_text(errors="replace")
        assert code is None, f"{name} ended with {code}\n{said}"
        return said

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while not holds():
            logs = (f"--- {name}\n{self._said(name)[-2_000:]}" for name in self._processes)
            assert time.monotonic() < deadline, "\n".join([f"it never came to this: {what}", *logs])
            time.sleep(0.05)

    # --- Over HTTP ---------------------------------------------------------------------------------------------------

    def ask(self, method: str, url: str, **options: Any) -> Any:
        """What a gateway answers; it must not refuse.

        A gateway of this version answers 503 when NATS is too slow on a busy machine. A submission that is answered so
        has left no run, and a cancel may be given twice, so the request is sent again.
        """
        answers: list[httpx.Response] = []

        def is_answered() -> bool:
            answers.append(httpx.request(method, url, timeout=20, verify=NO_TLS, **options))
            return not _is_to_be_sent_again(answers[-1])

        self._until(is_answered, f"{method} {url} is answered")
        answer = answers[-1]
        assert answer.status_code < 300, f"{method} {url}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, url: str, flow_name: str, key: str, **fields: Any) -> str:
        """Submit a run; its tasks leave their lines under ``key``."""
        body = {"flow_name": flow_name, "params": {"run": key}, **fields}
        return str(self.ask("POST", f"{url}/runs", json=body)["run_id"])

    def until(self, url: str, run_id: str, statuses: Collection[str]) -> dict[str, Any]:
        """The run as a gateway shows it, as soon as it has one of these statuses."""
        found: dict[str, Any] = {}

        def holds() -> bool:
            found.update(self.ask("GET", f"{url}/runs/{run_id}"))
            return found["status"] in statuses

        self._until(holds, f"{run_id} is one of {sorted(statuses)}, at {url}")
        return found

    def until_called(self, key: str, task: str) -> None:
        """Wait for the first call of a task of the run with this key."""
        self._until(lambda: self.calls(key, task) > 0, f"'{task}' of {key} was called")

    def until_log_ended(self, url: str, run_id: str) -> list[str]:
        """The types of the run's events as soon as its log has an end; ``url`` is a gateway of this version."""
        types: list[str] = []

        def holds() -> bool:
            events = self.ask("GET", f"{url}/runs/{run_id}/events", params={"limit": 1_000})["events"]
            types[:] = [event["type"] for event in events]
            return bool({"EXECUTION_COMPLETED", "EXECUTION_FAILED", "EXECUTION_CANCELED"} & set(types))

        self._until(holds, f"the log of {run_id} has an end")
        return types

    def calls(self, key: str, task: str) -> int:
        """How often a task of the run with this key was called, by whichever worker."""
        file = self.traces / f"{key}.{task}"
        return len(file.read_bytes().splitlines()) if file.exists() else 0

    def account(self, run_id: str, key: str) -> str:
        """All that is known of a run, for a person to read: what was stored and when, and which worker called what."""
        names = {str(process.pid): name for name, process in self._processes.items()}
        calls = []
        for file in self.traces.glob(f"{key}.*"):
            for line in file.read_text().splitlines():
                pid, at = line.split()
                calls.append(f"{float(at):.4f} {names.get(pid, pid)} calls {file.suffix[1:]}")
        return "\n".join(["", f"--- {run_id}", *sorted([*self.history.account(run_id).splitlines(), *calls])])


def _module(program_name: str) -> list[str]:
    return [sys.executable, "-m", f"pyoco_server.cli.{program_name}"]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, verify=NO_TLS).status_code == 200
    except httpx.TransportError:
        return False


def _is_to_be_sent_again(answer: httpx.Response) -> bool:
    return answer.status_code == 503 and answer.json().get("error", {}).get("err_id") == "ERR-PYOCO-0003"

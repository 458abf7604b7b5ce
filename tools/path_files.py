"""Print which files of pyoco_server a run passes through, from ``POST /runs`` to the list, and which a cancel.

The tool starts a gateway with its own NATS server and a worker, each as a process of the real command line, and both
record which functions they call (``sys.setprofile``, in every thread). A recording of a run begins before the request
and ends when ``GET /runs`` shows the run as COMPLETED. A recording of a cancel begins while a worker executes a task of
the run, and ends when the run is shown as CANCELLED. What a file does when it is imported does not count. Heartbeats
and other background work must not count, either: both paths are recorded several times, each time with a flow that the
platform has not seen before, and the idle platform once. A file counts if one of its functions is called in every
recording of the path, and not while the platform is idle.

Usage: ``python -m tools.path_files [ROOT]``; ROOT is another checkout, by default this one.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

PROCESSES: Final = ("gateway", "worker")
ROUNDS: Final = 8
IDLE_SEC: Final = 15.0
"""Long enough for each heartbeat, which comes every second."""
PATIENCE_SEC: Final = 30.0
Called = dict[str, set[str]]
"""By process: functions, each as ``file:name``."""
OPTIMISED: Final = 0x1
"""Code of a function has this flag; the body of a module or class does not."""

FLOWS: Final = """\
import asyncio
from pyoco import Flow, task

@task
def one() -> int:
    return 1

@task
def two(ctx) -> int:
    return ctx.results["one"] + 1

@task
def three(ctx) -> int:
    return ctx.results["two"] + 1

@task
async def endless() -> None:
    await asyncio.sleep(600)

RUNS = [Flow(f"run-{number}") >> one >> two >> three for number in range(%(flows)d)]
CANCELS = [Flow(f"cancel-{number}") >> one >> endless for number in range(%(flows)d)]

def resolve(name: str) -> Flow:
    return next(flow for flow in RUNS + CANCELS if flow.name == name)
"""


# --- In the processes that are observed ------------------------------------------------------------------------------


class Recorder:
    """Records which functions of a package are called between SIGUSR1 and SIGUSR2."""

    def __init__(self, package: Path, folder: Path, name: str) -> None:
        self._prefix = f"{package}{os.sep}"
        self._folder = folder
        self._name = name
        self._seen: set[CodeType] = set()

    def install(self) -> None:
        """Observe all threads, now and later."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)
        (self._folder / f"{self._name}.ready").touch()

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._seen.add(frame.f_code)

    def _begin(self, *_: object) -> None:
        self._seen.clear()
        (self._folder / f"{self._name}.begun").touch()

    def _end(self, *_: object) -> None:
        codes = [code for code in [*self._seen] if code.co_flags & OPTIMISED]
        own = [code for code in codes if code.co_filename.startswith(self._prefix)]
        called = {f"{code.co_filename.removeprefix(self._prefix)}:{code.co_qualname}" for code in own}
        target = self._folder / f"{self._name}.called"
        target.with_suffix(".part").write_text(json.dumps(sorted(called)), encoding="utf-8")
        target.with_suffix(".part").rename(target)


def observed(root: Path, folder: Path, name: str, script: str, arguments: list[str]) -> None:
    """Run a console script of a checkout, observed."""
    sys.path.insert(0, str(root / "src"))
    module, _, function = _scripts(root)[script].partition(":")
    main = getattr(importlib.import_module(module), function)
    package = Path(str(sys.modules["pyoco_server"].__file__)).parent
    if package.parent != root / "src":
        raise SystemExit(f"{package} is not the package of {root}")
    Recorder(package, folder, name).install()
    sys.argv = [script, *arguments]
    sys.exit(main())


def _scripts(root: Path) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(project["project"]["scripts"])


# --- In the tool -----------------------------------------------------------------------------------------------------


class Platform:
    """A gateway and a worker of a checkout, both observed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port, self._nats_port = _free_ports(2)

    def start(self) -> None:
        """Start both processes and wait until the gateway serves."""
        flows = self._folder / "flows_of_the_tool.py"
        flows.write_text(FLOWS % {"flows": ROUNDS + 1}, encoding="utf-8")
        up = ["up", "--port", str(self._port), "--nats-client-port", str(self._nats_port), "--log-level", "WARNING"]
        self._start("gateway", "pyoco-server", up)
        self._until(self._is_ready, "the gateway")
        nats = f"nats://127.0.0.1:{self._nats_port}"
        self._start("worker", "pyoco-worker", ["--nats-url", nats, "--flow-resolver", f"{flows}:resolve"])

    def stop(self) -> None:
        """End both processes."""
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            process.wait(PATIENCE_SEC)

    def idle(self) -> Called:
        """Return the functions that are called while there is nothing to do."""
        with self._recorded() as called:
            time.sleep(IDLE_SEC)
        return called

    def run(self, number: int) -> Called:
        """Return the functions that are called for a run."""
        with self._recorded() as called:
            run_id = self._submit(f"run-{number}")
            self._until(lambda: self._listed(run_id) == "COMPLETED", "the run's end")
        return called

    def cancel(self, number: int) -> Called:
        """Return the functions that are called for a cancel."""
        run_id = self._submit(f"cancel-{number}")
        self._until(lambda: self._get(f"/runs/{run_id}")["tasks"].get("endless") == "RUNNING", "the task's start")
        with self._recorded() as called:
            self._ask("POST", f"/runs/{run_id}/cancel", {})
            self._until(lambda: self._listed(run_id) == "CANCELLED", "the cancel's end")
        return called

    def _start(self, name: str, script: str, arguments: list[str]) -> None:
        environment = {
            **os.environ,
            "PYOCO_DATA_DIR": str(self._folder / "data"),
            "PYOCO_RESULT_KEY": "0" * 64,
            "PYOCO_RUN_HEARTBEAT_INTERVAL_SEC": "1",
            "PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC": "1",
        }
        command = [sys.executable, __file__, "--observed", str(self._root), str(self._folder), name, script, *arguments]
        self._processes[name] = subprocess.Popen(command, env=environment, cwd=self._folder)  # noqa: S603
        self._until((self._folder / f"{name}.ready").exists, name)

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[Called]:
        called: Called = {}
        self._signal(signal.SIGUSR1, "begun")
        yield called
        self._signal(signal.SIGUSR2, "called")
        for name in PROCESSES:
            called[name] = set(json.loads((self._folder / f"{name}.called").read_text(encoding="utf-8")))

    def _signal(self, number: signal.Signals, answer: str) -> None:
        for name in PROCESSES:
            (self._folder / f"{name}.{answer}").unlink(missing_ok=True)
            self._processes[name].send_signal(number)
        for name in PROCESSES:
            self._until((self._folder / f"{name}.{answer}").exists, f"the {name}'s recording")

    def _is_ready(self) -> bool:
        try:
            return bool(self._get("/health/ready"))
        except (urllib.error.URLError, ConnectionError):
            return False

    def _submit(self, flow_name: str) -> str:
        return str(self._ask("POST", "/runs", {"flow_name": flow_name})["run_id"])

    def _listed(self, run_id: str) -> str | None:
        runs = self._get("/runs")
        return next((run["status"] for run in runs if run["run_id"] == run_id), None)

    def _get(self, path: str) -> Any:  # noqa: ANN401 any JSON
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 any JSON
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SEC) as answer:  # noqa: S310
            return json.load(answer)

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + PATIENCE_SEC
        while not is_so():
            if time.monotonic() > ends_at:
                raise SystemExit(f"{what} did not come within {PATIENCE_SEC:g} s")
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended:
                raise SystemExit(f"the {ended[0]} ended while waiting for {what}")
            time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _files(recordings: list[Called], idle: Called) -> Called:
    """Return the files on the path, by process."""
    always = {name: set.intersection(*(called[name] for called in recordings)) for name in PROCESSES}
    return {name: {called.partition(":")[0] for called in always[name] - idle[name]} for name in PROCESSES}


def _print(title: str, files: Called) -> None:
    together = sorted(set.union(*files.values()))
    counts = ", ".join(f"{len(files[name])} in the {name}" for name in PROCESSES)
    print(f"{title}: {len(together)} files ({counts})")
    for file in together:
        print(f"  {''.join(name[0] if file in files[name] else '-' for name in PROCESSES)} {file}")


def main() -> None:
    """Measure a checkout and print both paths."""
    if sys.argv[1:2] == ["--observed"]:
        checkout, target, name, script, *arguments = sys.argv[2:]
        observed(Path(checkout), Path(target), name, script, arguments)
        return
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    with tempfile.TemporaryDirectory(prefix="pyoco-path-files-") as folder:
        platform = Platform(root, Path(folder))
        try:
            platform.start()
            runs = [platform.run(number) for number in range(ROUNDS + 1)][1:]
            cancels = [platform.cancel(number) for number in range(ROUNDS + 1)][1:]
            idle = platform.idle()
        finally:
            platform.stop()
    _print("one run, from POST /runs to the list", _files(runs, idle))
    _print("one cancel, from POST /runs/{run_id}/cancel to the list", _files(cancels, idle))


if __name__ == "__main__":
    main()

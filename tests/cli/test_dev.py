"""``pyoco-server dev``: its output, changed files, killed processes, and Ctrl-C. Tests share the slow starts."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.serving import Served, clean_environment, command, free_port, run_status, run_to_its_end, serving
from tests.plain_http import NO_TLS

GREETING = """
from pyoco import Flow, task

@task
def greet(name="you"):
    return "hello " + name

flow = Flow("greeting") >> greet
"""
FAREWELL = """
farewell = Flow("farewell") >> greet
"""
MODEL = '''
from pyoco_server.flows.yaml.document import read_flow_yaml

read = read_flow_yaml("""
version: 1
flow:
  graph: base
tasks:
  base:
    callable: flows:greet
""", name="from-yaml")
'''
WORKER = "-m pyoco_server.cli.worker"
PATIENCE_SEC = 90.0
pytestmark = pytest.mark.timeout(400)  # several starts, each of which may take START_SEC on a busy machine


def _until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _prints(served: Served, text: str) -> None:
    _until(lambda: text in served.output.read_text(encoding="utf-8"), f"it never printed {text!r}")


def _completes(url: str, flow_name: str) -> str:
    run_id: str = httpx.post(f"{url}/runs", json={"flow_name": flow_name}, timeout=20, verify=NO_TLS).json()["run_id"]
    run_status(url, run_id, "COMPLETED", within_sec=PATIENCE_SEC)
    return run_id


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    now = time.time_ns()
    os.utime(file, ns=(now, now + 1_000_000))


def _children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True, timeout=30)  # noqa: S607
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == process]


def _is_gone(process: int) -> bool:
    """Whether the process does not exist, or is a zombie."""
    state = subprocess.run(  # noqa: S603 a number
        ["ps", "-o", "stat=", "-p", str(process)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    ).stdout.strip()
    return not state or state.startswith("Z")


def test_dev_prints_its_addresses_and_runs_every_flow_of_its_files(tmp_path: Path) -> None:
    _write(tmp_path / "flows.py", GREETING + FAREWELL + MODEL)
    _write(tmp_path / "nightly.yaml", "version: 1\nflow:\n  graph: a\ntasks:\n  a:\n    callable: flows:greet\n")
    port = free_port()
    with serving(tmp_path, "dev", "flows.py", "nightly.yaml", "--port", str(port), port=port) as served:
        _prints(served, f"  try        pyoco-client --server {served.url} submit greeting --wait\n")
        _prints(served, "  durability nothing is synced before it is confirmed: PYOCO_DURABILITY is fast")
        for flow_name in ("greeting", "farewell", "from-yaml", "nightly"):
            _completes(served.url, flow_name)
        code, output = served.stop(signal.SIGINT)
    assert code == 130
    assert f"pyoco-server is at {served.url}; Ctrl-C stops everything\n" in output
    assert f"  dashboard  {served.url}/\n  API        {served.url}/docs\n  NATS       nats://127.0.0.1:" in output
    assert "  flows      greeting, farewell, from-yaml  (flows.py)\n             nightly  (nightly.yaml)\n" in output
    assert "Traceback" not in output


@pytest.mark.spec("004 REQ-0021")
def test_a_changed_file_replaces_the_flows_when_it_can_be_imported(tmp_path: Path) -> None:
    file, port = tmp_path / "flows.py", free_port()
    _write(file, "import there_is_no_such_thing\n")
    with serving(tmp_path, "dev", "flows.py", "--port", str(port), port=port) as served:
        _prints(served, "ModuleNotFoundError: No module named 'there_is_no_such_thing'")
        _prints(served, "there is no worker until the file is corrected and saved")
        _write(file, GREETING)
        assert _output(served.url, _completes(served.url, "greeting")) == "hello you"
        _write(file, f"{GREETING}\nhalf = 1 / 0\n")
        _prints(served, "the flows stay as they were until the file is corrected and saved; no restart is needed\n")
        assert _output(served.url, _completes(served.url, "greeting")) == "hello you"
        _write(file, GREETING.replace("hello", "good morning") + FAREWELL)
        _prints(served, "flows.py changed: the worker has it\n  flows      greeting, farewell  (flows.py)\n")
        assert _output(served.url, _completes(served.url, "farewell")) == "good morning you"
        code, output = served.stop()
    assert code == 0
    assert "error: flows.py changed, but 'flows.py' cannot be imported: ZeroDivisionError: division by zero (" in output
    assert f"{file}, line 10) [MSG-PYOCO-0018/ERR-PYOCO-0018]\n" in output
    assert "Traceback" not in output


def _output(url: str, run_id: str) -> str:
    tasks = httpx.get(f"{url}/runs/{run_id}/tasks", verify=NO_TLS).json()
    greeting: str = tasks["task_records"]["greet"]["output"]
    return greeting


def _command_of(process: int) -> str:
    return subprocess.run(  # noqa: S603 a number
        ["ps", "-o", "args=", "-p", str(process)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    ).stdout


def test_a_killed_worker_is_replaced_and_a_killed_dev_leaves_no_process_and_keeps_its_data(tmp_path: Path) -> None:
    port = free_port()
    _write(tmp_path / "flows.py", GREETING)
    with serving(tmp_path, "dev", "flows.py", "--port", str(port), port=port) as served:
        run_id = _completes(served.url, "greeting")
        # The whole name: the command line of NATS has the folder of this test, which contains "worker", too.
        [worker] = [child for child in _children(served.process.pid) if WORKER in _command_of(child)]
        os.kill(worker, signal.SIGKILL)
        _prints(served, "the worker was ended by SIGKILL; it is started again")
        _completes(served.url, "greeting")
        children = _children(served.process.pid)
        assert len(children) == 2  # NATS and the worker
        served.process.kill()
        served.process.wait()
        for child in children:
            _until(lambda child=child: _is_gone(child), f"{_command_of(child)} is still running")  # type: ignore[misc]
    with serving(tmp_path, "dev", "flows.py", "--port", str(port), port=port) as served:
        assert run_status(served.url, run_id, "COMPLETED") == "COMPLETED"
        _completes(served.url, "greeting")
        assert served.stop()[0] == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0\n", "ZeroDivisionError"),
        ("import os\nos._exit(7)\n", "the worker ended with exit code 7 while it looked"),
    ],
)
def test_once_ends_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    _write(tmp_path / "flows.py", text)
    ended = run_to_its_end(tmp_path, "dev", "flows.py", "--port", str(free_port()), "--submit", "greeting", "--once")
    assert ended.returncode == 1
    assert reason in ended.stderr
    assert "ERR-PYOCO-0018" in ended.stderr


@contextlib.contextmanager
def _in_a_terminal(directory: Path, *arguments: str, **variables: str) -> Iterator[Served]:
    """Start it as a shell does: Ctrl-C reaches every process of the group, also NATS and the worker."""
    port = free_port()
    output = directory / "terminal.log"
    with output.open("wb") as writing:
        process = subprocess.Popen(  # noqa: S603 our own command
            command("dev", *arguments, "--port", str(port)),
            cwd=directory,
            env=clean_environment(**variables),
            stdout=writing,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Served(process, f"http://127.0.0.1:{port}", output)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ctrl_c(served: Served) -> tuple[int, str]:
    os.killpg(served.process.pid, signal.SIGINT)
    return served.process.wait(timeout=PATIENCE_SEC), served.output.read_text(encoding="utf-8")


def test_ctrl_c_while_a_run_is_at_work_shows_no_traceback(tmp_path: Path) -> None:
    _write(tmp_path / "flows.py", GREETING.replace("    return", "    import time; time.sleep(2)\n    return"))
    with _in_a_terminal(tmp_path, "flows.py", "--submit", "greeting") as served:
        _prints(served, "flows      greeting  (flows.py)")
        _until(lambda: _tasks_at_work(served.url), "no run began")
        code, output = _ctrl_c(served)
    assert code == 130
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output


def _tasks_at_work(url: str) -> list[dict[str, object]]:
    try:
        runs = httpx.get(f"{url}/runs", timeout=5, verify=NO_TLS).json()
    except httpx.TransportError:
        return []
    return [run for run in runs if run.get("tasks") == {"greet": "RUNNING"}]


@pytest.mark.parametrize("loaded", ["pyoco_server.cli.shared.parsing", "fastapi.params"])
def test_ctrl_c_while_it_is_only_starting_shows_no_traceback(tmp_path: Path, loaded: str) -> None:
    _write(tmp_path / "flows.py", GREETING)
    with _in_a_terminal(tmp_path, "flows.py", PYTHONPROFILEIMPORTTIME="1") as served:  # it prints what it imports
        _prints(served, f"{loaded}\n")
        code, output = _ctrl_c(served)
    assert code == 130
    assert "Traceback" not in output

"""nats-py with private members renamed: the self-check finds that, and the platform works on the public API alone."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import nats
import pytest

from pyoco_server.adapters.jetstream.transport import compat
from tests.cli.serving import Served, clean_environment, free_port, run_status, serving
from tests.plain_http import NO_TLS

PLAIN = {"PYOCO_NATS_PLAIN_CLIENT": "1"}

FLOWS = """
import time
from pyoco import Flow, task

@task
def one():
    return 1

@task
def two(one):
    return one + 1

@task
def wait(ctx):
    while not ctx.is_cancelled:
        time.sleep(0.01)

quick = Flow("quick") >> one >> two
endless = Flow("endless") >> wait
"""


def renamed_library(directory: Path, *names: str) -> Path:
    """Copy the installed nats-py, with these members renamed everywhere; the library works as before."""
    library = directory / "renamed"
    shutil.copytree(Path(nats.__file__).parent, library / "nats", ignore=shutil.ignore_patterns("__pycache__"))
    pattern = re.compile(rf"\b({'|'.join(names)})\b")
    for file in library.rglob("*.py"):
        file.write_text(pattern.sub(r"\1_renamed", file.read_text(encoding="utf-8")), encoding="utf-8")
    return library


def problems_with(library: Path) -> str:
    program = "from pyoco_server.adapters.jetstream.transport import compat; print('; '.join(compat.PROBLEMS))"
    environment = {**os.environ, "PYTHONPATH": str(library)}
    done = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_installed_library_passes_the_check() -> None:
    assert compat.PROBLEMS == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("_ps", "Client._ps is missing"),
        ("_sid", "Client._sid is missing"),
        ("_pending", "Client._pending is missing"),
        ("_flush_pending", "Client._flush_pending is missing"),
        ("_process_msg", "Client._process_msg does not take (sid, subject, reply, data, headers)"),
        ("_send_ping", "Client._send_ping does not take (future)"),
        ("_process_op_err", "Client._process_op_err does not take (e)"),
        ("_server_info", "Client._server_info is missing"),
        ("_flusher", "Client._flusher is missing"),
        ("needed", "Parser.needed is no int"),
        ("buf", "Parser.buf is no bytearray"),
        ("_wait_for_msgs_task", "Subscription._wait_for_msgs_task is missing"),
        ("headers", "Client._process_msg does not take (sid, subject, reply, data, headers)"),
    ],
)
def test_check_finds_a_renamed_member(tmp_path: Path, name: str, problem: str) -> None:
    assert problem in problems_with(renamed_library(tmp_path, name))


def test_check_finds_a_member_that_the_library_does_not_use_any_more(tmp_path: Path) -> None:
    library = renamed_library(tmp_path, "_pending")
    client = library / "nats" / "aio" / "client.py"
    text = client.read_text(encoding="utf-8")
    client.write_text(text.replace("self._nuid = NUID()", "self._nuid = NUID()\n        self._pending = []"))
    assert problems_with(library) == "Client._flusher does not use _pending"


def test_check_finds_a_module_that_has_moved(tmp_path: Path) -> None:
    library = renamed_library(tmp_path, "subscription")
    (library / "nats" / "aio" / "subscription.py").rename(library / "nats" / "aio" / "subscription_renamed.py")
    assert "the check failed: ImportError" in problems_with(library)


def test_no_other_module_touches_private_members_of_the_library() -> None:
    package = Path(compat.__file__).parent.parent
    for file in package.rglob("*.py"):
        if file == Path(compat.__file__):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("nats.protocol"), file
            if isinstance(node, ast.ClassDef):
                assert "Client" not in {base.id for base in node.bases if isinstance(base, ast.Name)}, file
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                assert isinstance(node.value, ast.Name), f"{file}:{node.lineno}"
                assert node.value.id in {"self", "cls"} or node.attr == "_replace", f"{file}:{node.lineno}"


@contextmanager
def a_worker(directory: Path, nats_port: int, **variables: str) -> Iterator[Path]:
    (directory / "flows.py").write_text(FLOWS)
    output = directory / "worker.log"
    with output.open("wb") as writing:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyoco_server.cli.worker", "--flows", "flows.py"],
            cwd=directory,
            env=clean_environment(PYOCO_NATS_URL=f"nats://127.0.0.1:{nats_port}", **variables),
            stdout=writing,
            stderr=subprocess.STDOUT,
        )
    try:
        yield output
        process.terminate()
        assert process.wait(timeout=20) == 0, output.read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def submit(served: Served, flow: str) -> str:
    """Submit a run; NATS may have been killed a moment ago."""
    deadline = time.monotonic() + 20
    while True:
        answer = httpx.post(f"{served.url}/runs", json={"flow_name": flow}, timeout=20, verify=NO_TLS)
        if answer.status_code != 503:
            return str(answer.raise_for_status().json()["run_id"])
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)


def kill_embedded_nats(served: Served) -> None:
    """Kill the server that the gateway started."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
            command = (directory / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if parent == str(served.process.pid) and b"nats-server" in command:
            os.kill(int(directory.name), signal.SIGKILL)
            return
    raise AssertionError("the gateway runs no NATS server")


@pytest.mark.parametrize("case", ["setting", "renamed members"])
def test_platform_works_on_the_plain_path(tmp_path: Path, case: str) -> None:
    """Submit, run, cancel; NATS is killed and comes back; submit, run, stop."""
    if case == "setting":
        variables = PLAIN
    else:
        variables = {"PYTHONPATH": str(renamed_library(tmp_path, "_ps", "_pending", "_process_msg", "_transport"))}
    port, nats_port = free_port(), free_port()
    arguments = ("up", "--port", str(port), "--nats-client-port", str(nats_port))
    with serving(tmp_path, *arguments, port=port, PYOCO_DURABILITY="sync", **variables) as served:
        with a_worker(tmp_path, nats_port, **variables) as worker_output:
            assert run_status(served.url, submit(served, "quick"), "COMPLETED", "FAILED") == "COMPLETED"
            endless = submit(served, "endless")
            run_status(served.url, endless, "RUNNING")
            httpx.post(f"{served.url}/runs/{endless}/cancel", timeout=20, verify=NO_TLS).raise_for_status()
            run_status(served.url, endless, "CANCELLED")
            kill_embedded_nats(served)
            assert run_status(served.url, submit(served, "quick"), "COMPLETED", "FAILED") == "COMPLETED"
        code, gateway_output = served.stop()
    assert code == 0, gateway_output
    expected = 0 if case == "setting" else 1
    for output in (gateway_output, worker_output.read_text(encoding="utf-8")):
        assert output.count("its public API is used, which is slower") == expected, output

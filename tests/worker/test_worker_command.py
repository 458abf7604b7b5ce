"""The command as users start it: a process of its own, and mistakes that are explained without a traceback."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.durability.connection import connect
from tests.adapters.real_nats import NatsServer

FLAGS = (
    "--nats-url",
    "--tags",
    "--worker-id",
    "--flow-resolver",
    "--concurrency",
    "--isolation",
    "--wheel-sync",
    "--no-wheel-sync",
    "--wheel-sync-dir",
    "--wheel-sync-interval-sec",
    "--wheel-install-timeout-sec",
    "--poll-timeout",
    "--run-once",
)
RESOLVER = """
import os
from pathlib import Path
from pyoco import Flow, task

@task
def only():
    Path("environment").write_text(" ".join(os.environ))
    return 1

flow = Flow("main") >> only

def resolve(name):
    return {"main": flow}[name]
"""
LIMIT_SEC = 30.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pyoco_server.cli.worker", *arguments]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYOCO_")}


def call(folder: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 our own command
        command(*arguments),
        cwd=folder,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_SEC,
        check=False,
    )


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def test_the_help_lists_every_flag(tmp_path: Path) -> None:
    done = call(tmp_path, "--help")
    assert done.returncode == 0
    assert [flag for flag in FLAGS if flag not in done.stdout] == []
    assert "example: pyoco-worker" in done.stdout


MISTAKES: list[tuple[list[str], str]] = [
    (["--tags", "a.b"], "--tags: 'a.b' cannot be used; give 1 to 128"),
    (["--tags", ","], "--tags"),
    (["--worker-id", "a b"], "--worker-id"),
    (["--worker-id", ""], "--worker-id: '' cannot be used; give 1 to 128"),
    (["--nats-url", ""], "--nats-url: is empty"),
    (["--concurrency", "0"], "--concurrency: PYOCO_WORKER_CONCURRENCY='0' must be"),
    (["--concurrency", "many"], "PYOCO_WORKER_CONCURRENCY"),
    (["--nats-url", "not a url"], "PYOCO_NATS_URL"),
    (["--isolation", "magic"], "--isolation"),
    (["--poll-timeout", "0"], "--poll-timeout"),
    (["--poll-timeout", "nan"], "--poll-timeout"),
    (["--poll-timeout", "inf"], "--poll-timeout"),
    (["--poll-timeout", "soon"], "--poll-timeout"),
    (["--flow-resolver", "flows"], "'flows' is not module:function"),
    (["--flow-resolver", ""], "'' is not module:function"),
    (["--flow-resolver", "nowhere.py:resolve"], "there is no file 'nowhere.py'"),
    (["--flow-resolver", "flows.py:nothing"], "has no function 'nothing'"),
    (["--flows", "there_is_no_such"], "ModuleNotFoundError"),
    (["--flows", "flows.py", "--flow-resolver", "flows.py:resolve"], "exclude each other"),
    (["--wheel-sync-interval-sec", "-1"], "PYOCO_WHEEL_SYNC_INTERVAL_SEC"),
    (["--tag", "cpu"], "--tag"),
    (["stray"], "stray"),
]
ALL_AT_ONCE = """
import contextlib, io, json, sys
from pyoco_server.cli.worker.main import main

for line in sys.stdin:
    with contextlib.redirect_stderr(io.StringIO()) as output:
        code = main(json.loads(line))
    print(json.dumps([code, output.getvalue()]))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """Return exit code and stderr for each mistake; one process makes them all, since it starts slowly."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "flows.py").write_text(RESOLVER)
    done = subprocess.run(  # noqa: S603 our own text
        [sys.executable, "-c", ALL_AT_ONCE],
        cwd=folder,
        env=environment(),
        input="\n".join(json.dumps(arguments) for arguments, _ in MISTAKES),
        capture_output=True,
        text=True,
        timeout=LIMIT_SEC,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=lambda number: " ".join(MISTAKES[number][0]))
def test_a_mistake_is_reported_with_an_example(number: int, answers: list[tuple[int, str]]) -> None:
    code, stderr = answers[number]
    assert code == 1
    assert MISTAKES[number][1] in stderr
    assert "ERR-PYOCO-0018" in stderr
    assert "example: pyoco-worker" in stderr
    assert "Traceback" not in stderr


def test_run_once_reports_within_seconds_that_nats_is_not_there(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = call(tmp_path, "--nats-url", f"nats://127.0.0.1:{unused_port()}", "--run-once")
    assert time.monotonic() - begin < 15
    assert done.returncode == 1
    assert "ERR-PYOCO-0003" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server.url


def test_a_worker_runs_a_job_and_leaves(nats_url: str, tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(RESOLVER)
    arguments = ["--nats-url", nats_url, "--flow-resolver", "flows.py:resolve", "--worker-id", "w1", "--run-once"]
    nothing = call(tmp_path, *arguments, "--poll-timeout", "0.1")
    assert nothing.returncode == 0
    job = b'{"run_id": "r1", "flow_name": "main", "tag": "default", "submitted_at": 1}'

    async def publish() -> None:
        async with await connect(nats_url, name="test") as connection:
            await connection.js.publish("pyoco.work.default", job)

    asyncio.run(publish())
    secrets = {"PYOCO_AUTH_PEPPER": "p" * 40, "PYOCO_RESULT_KEY": "r" * 40, "PYOCO_API_KEY": "pyoco_x"}
    done = call(tmp_path, *arguments, **secrets)
    assert done.returncode == 0, done.stderr
    assert "PYOCO_AUTH_PEPPER is set for this worker" in done.stderr
    assert not secrets.keys() & (tmp_path / "environment").read_text().split()

    async def stored() -> bytes | None:
        async with await connect(nats_url, name="test") as connection:
            return (await (await connection.js.key_value("pyoco_runs")).get("r1")).value

    body = asyncio.run(stored())
    assert body is not None
    assert b'"status":"COMPLETED"' in body


@pytest.mark.spec("004 REQ-0021")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_worker_told_to_stop_leaves_in_good_order(number: int, code: int, nats_url: str, tmp_path: Path) -> None:
    process = subprocess.Popen(  # noqa: S603 our own command
        command("--nats-url", nats_url), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "worker_started" in line:
                    break
            process.send_signal(number)
            rest = process.stderr.read()
            assert process.wait(LIMIT_SEC) == code
            assert "worker_stopped" in rest
            assert "Traceback" not in rest
        finally:
            process.kill()

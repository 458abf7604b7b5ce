"""``pyoco-server up`` and ``dev`` as people use them: real processes, a real NATS, signals."""

import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from pyoco_server.cli import server
from tests.cli.serving import free_port, run_status, run_to_its_end, serving

FLOW = """
from pyoco import Flow, task

@task
def greet(name="you"):
    return "{word} " + name

flow = Flow("greeting") >> greet
"""


def test_up_starts_a_nats_of_its_own_and_stops_on_sigterm(tmp_path: Path) -> None:
    port, nats_port = free_port(), free_port()
    with serving(tmp_path, "up", "--port", str(port), "--nats-client-port", str(nats_port), port=port) as served:
        assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}
        assert httpx.get(f"{served.url}/health/ready").json()["nats"] == "connected"
        accepted = httpx.post(f"{served.url}/runs", json={"flow_name": "any"})
        assert accepted.json()["status"] == "PENDING"
        with socket.create_connection(("127.0.0.1", nats_port), timeout=2):
            pass  # workers can reach it
        assert served.stop()[0] == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", nats_port), timeout=2)


def test_the_nats_of_its_own_is_monitored_where_it_is_told_to_be(tmp_path: Path) -> None:
    port, http_port = free_port(), free_port()
    own = ("--nats-client-port", str(free_port()), "--nats-http-port", str(http_port))
    with serving(tmp_path, "up", "--port", str(port), *own, port=port) as served:
        assert httpx.get(f"http://127.0.0.1:{http_port}/varz").json()["jetstream"]["config"]
        assert served.stop()[0] == 0


@pytest.mark.spec("004 REQ-0021")
def test_what_was_accepted_is_still_there_after_a_restart(tmp_path: Path) -> None:
    port, nats_port = free_port(), free_port()
    arguments = ("up", "--port", str(port), "--nats-client-port", str(nats_port))
    with serving(tmp_path, *arguments, port=port) as served:
        run_id = httpx.post(f"{served.url}/runs", json={"flow_name": "any"}).json()["run_id"]
        assert served.stop(signal.SIGINT)[0] == 130
    with serving(tmp_path, *arguments, port=port) as served:
        assert httpx.get(f"{served.url}/runs/{run_id}").json()["status"] == "PENDING"
        assert [run["run_id"] for run in httpx.get(f"{served.url}/runs").json()] == [run_id]
        assert served.stop()[0] == 0


def test_up_on_a_port_that_is_taken_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run_to_its_end(tmp_path, "up", "--port", str(port), "--nats-client-port", str(free_port()))
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "ERR-PYOCO-0018" in ended.stderr
    assert "Traceback" not in ended.stderr.rpartition("error:")[2]


def test_up_on_a_nats_port_that_is_taken_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run_to_its_end(tmp_path, "up", "--port", str(free_port()), "--nats-client-port", str(port))
    assert ended.returncode == 1
    assert str(port) in ended.stderr
    assert "ERR-PYOCO-0003" in ended.stderr


def test_a_second_one_on_the_same_data_says_so(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, "up", "--port", str(port), "--nats-client-port", str(free_port()), port=port) as served:
        ended = run_to_its_end(tmp_path, "up", "--port", str(free_port()), "--nats-client-port", str(free_port()))
        assert ended.returncode == 1
        assert "in use" in ended.stderr
        assert served.stop()[0] == 0


@pytest.mark.spec("004 REQ-0021", "004 ERR-PYOCO-0018")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("up", "--port", "many"), "--port: PYOCO_HTTP_PORT='many' must be a port"),
        (("up", "--port", "99999"), "--port: PYOCO_HTTP_PORT='99999' must be a port"),
        (("up", "--dashboard-lang", "fr"), "--dashboard-lang: PYOCO_DASHBOARD_LANG='fr' must be one of auto, ja, en"),
        (("--dashboard-lang", "fr", "up"), "--dashboard-lang: PYOCO_DASHBOARD_LANG='fr' must be one of auto, ja, en"),
        (("dev", "--dashboard-lang", "fr"), "--dashboard-lang: PYOCO_DASHBOARD_LANG='fr' must be one of auto, ja, en"),
        (("up", "--log-level", "LOUD"), "--log-level: PYOCO_LOG_LEVEL='LOUD' must be one of DEBUG, INFO, WARNING"),
        (("up", "--nats-url", "http://x"), "--nats-url: PYOCO_NATS_URL='http://x' must be nats://host:port"),
        (("dev", "--port", "many"), "--port: PYOCO_HTTP_PORT='many' must be a port"),
        (("keys", "list", "--nats-url", "a b"), "--nats-url: PYOCO_NATS_URL='a b' must be nats://host:port"),
        (("up", "--nats-client-port", "x"), "--nats-client-port"),
        (("up", "--frobnicate"), "--frobnicate"),
        (("--port", "many"), "--port: PYOCO_HTTP_PORT='many' must be a port"),
        (("--dashboard-lang", "ja", "--port", "many"), "--port: PYOCO_HTTP_PORT='many' must be a port"),
        (("dev", "nothing-here.py"), "nothing-here.py"),
    ],
)
def test_what_was_typed_wrong_is_told_with_an_example(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert server.main(arguments) == 1
    said = capsys.readouterr().err
    assert told in said
    assert "ERR-PYOCO-0018" in said
    assert "example: pyoco-server " in said
    assert "Traceback" not in said


def test_a_mistake_is_the_exit_code_of_the_program(tmp_path: Path) -> None:
    ended = run_to_its_end(tmp_path, "up", "--port", "many")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "error: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_wrong_level_in_the_environment_keeps_nobody_from_starting(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("up", "--port", str(port), "--nats-client-port", str(free_port()))
    with serving(tmp_path, *arguments, port=port, PYOCO_LOG_LEVEL="LOUD") as served:
        code, output = served.stop()
    assert code == 0
    assert "ERR-PYOCO-0013" in output


@pytest.mark.spec("004 REQ-0020")
@pytest.mark.parametrize(
    ("before", "after", "language"),
    [(["ja"], [], "ja"), ([], ["ja"], "ja"), (["ja"], ["en"], "en")],
    ids=["before", "after", "both"],
)
def test_the_language_of_the_dashboard_is_given_before_the_command_or_after_it(
    tmp_path: Path, before: list[str], after: list[str], language: str
) -> None:
    port = free_port()
    option = ["--dashboard-lang"]
    arguments = [*(option + before if before else []), "up", *(option + after if after else [])]
    ports = ["--port", str(port), "--nats-client-port", str(free_port())]
    with serving(tmp_path, *arguments, *ports, port=port) as served:
        assert f'<html lang="{language}"' in httpx.get(served.url).text
        assert served.stop()[0] == 0


def test_help_names_every_option(tmp_path: Path) -> None:
    told = run_to_its_end(tmp_path, "up", "--help").stdout
    for option in (
        "--host",
        "--port",
        "--log-level",
        "--nats-url",
        "--dashboard-lang",
        "--with-nats-bootstrap",
        "--nats-listen-host",
        "--nats-client-port",
        "--nats-http-port",
    ):
        assert option in told


@pytest.mark.spec("004 REQ-0021")
def test_dev_runs_the_flows_of_a_file_and_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "flows.py"
    file.write_text(FLOW.replace("{word}", "hello"), encoding="utf-8")
    port = free_port()
    with serving(tmp_path, "dev", "flows.py", "--port", str(port), port=port) as served:
        assert _greeting(served.url) == "hello you"
        file.write_text(FLOW.replace("{word}", "good morning"), encoding="utf-8")
        os.utime(file, ns=(time.time_ns(), time.time_ns() + 1_000_000))
        deadline = time.monotonic() + 20
        while _greeting(served.url) != "good morning you":
            assert time.monotonic() < deadline
        code, output = served.stop(signal.SIGINT)
        assert code == 130
        assert f"http://127.0.0.1:{port}" in output
        assert "Traceback" not in output


def _greeting(url: str) -> str:
    run_id = httpx.post(f"{url}/runs", json={"flow_name": "greeting"}).json()["run_id"]
    run_status(url, run_id, "COMPLETED")
    greeting: str = httpx.get(f"{url}/runs/{run_id}/tasks").json()["task_records"]["greet"]["output"]
    return greeting


def test_dev_submits_a_run_and_leaves_with_its_outcome(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOW.replace("{word}", "hello"), encoding="utf-8")
    good = run_to_its_end(tmp_path, "dev", "flows.py", "--port", str(free_port()), "--submit", "greeting", "--once")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "COMPLETED" in good.stdout
    bad = run_to_its_end(tmp_path, "dev", "flows.py", "--port", str(free_port()), "--submit", "missing", "--once")
    assert bad.returncode == 1
    assert "FAILED" in bad.stdout

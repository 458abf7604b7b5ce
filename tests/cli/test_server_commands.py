"""``pyoco-server up`` and ``dev --submit`` as processes: ports, restarts, usage errors, signals."""

import signal
import socket
from pathlib import Path

import httpx
import pytest

from pyoco_server.cli.server import main as server
from tests.cli.serving import free_port, run_to_its_end, serving

pytestmark = pytest.mark.timeout(400)  # several starts, each of which may take START_SEC on a busy machine
FLOW = """
from pyoco import Flow, task

@task
def greet(name="you"):
    return "{word} " + name

flow = Flow("greeting") >> greet
"""


def test_up_starts_a_nats_at_the_given_ports_and_stops_on_sigterm(tmp_path: Path) -> None:
    port, nats_port, http_port = free_port(), free_port(), free_port()
    own = ("--nats-client-port", str(nats_port), "--nats-http-port", str(http_port))
    with serving(tmp_path, "up", "--port", str(port), *own, port=port) as served:
        assert httpx.get(f"http://127.0.0.1:{http_port}/varz").json()["jetstream"]["config"]
        assert httpx.get(f"{served.url}/health").json() == {"status": "ok"}
        ready = httpx.get(f"{served.url}/health/ready").json()
        assert (ready["nats"], ready["synced_by"]) == ("connected", "none")
        accepted = httpx.post(f"{served.url}/runs", json={"flow_name": "any"})
        assert accepted.json()["status"] == "PENDING"
        with socket.create_connection(("127.0.0.1", nats_port), timeout=2):
            pass  # workers can reach it
        assert served.stop()[0] == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", nats_port), timeout=2)


@pytest.mark.spec("004 REQ-0021")
def test_accepted_runs_survive_a_restart(tmp_path: Path) -> None:
    port, nats_port = free_port(), free_port()
    arguments = ("up", "--port", str(port), "--nats-client-port", str(nats_port))
    with serving(tmp_path, *arguments, port=port) as served:
        run_id = httpx.post(f"{served.url}/runs", json={"flow_name": "any"}).json()["run_id"]
        assert served.stop(signal.SIGINT)[0] == 130
    left = [tmp_path / ".pyoco", *(tmp_path / ".pyoco").rglob("*")]
    assert [path for path in left if path.stat().st_mode & 0o077] == [], "other users could read runs"
    for path in left:  # as earlier versions left them
        path.chmod(0o755 if path.is_dir() else 0o644)
    with serving(tmp_path, *arguments, port=port) as served:
        now = [path for path in (tmp_path / ".pyoco").rglob("*") if path.exists()]
        assert [path for path in now if path.stat().st_mode & 0o077] == []
        assert "directory_closed" in served.output.read_text()
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
    ("arguments", "expected"),
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
def test_a_usage_error_has_an_example(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert server.main(arguments) == 1
    said = capsys.readouterr().err
    assert expected in said
    assert "ERR-PYOCO-0018" in said
    assert "example: pyoco-server " in said
    assert "Traceback" not in said


def test_a_mistake_is_the_exit_code_of_the_program(tmp_path: Path) -> None:
    ended = run_to_its_end(tmp_path, "up", "--port", "many")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "error: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.spec("004 REQ-0020")
def test_the_language_of_the_dashboard_may_be_given_before_the_command_and_after_it(tmp_path: Path) -> None:
    """The last one counts; :func:`test_a_usage_error_has_an_example` shows that either place alone is read."""
    port = free_port()
    ports = ("--port", str(port), "--nats-client-port", str(free_port()))
    with serving(tmp_path, "--dashboard-lang", "ja", "up", "--dashboard-lang", "en", *ports, port=port) as served:
        assert '<html lang="en"' in httpx.get(served.url).text
        assert served.stop()[0] == 0
    with serving(tmp_path, "--dashboard-lang", "ja", "up", *ports, port=port, PYOCO_LOG_LEVEL="LOUD") as served:
        assert '<html lang="ja"' in httpx.get(served.url).text
        code, output = served.stop()
    assert code == 0
    assert "ERR-PYOCO-0013" in output  # a wrong level in the environment is only a warning


def test_help_names_every_option(tmp_path: Path) -> None:
    printed = run_to_its_end(tmp_path, "up", "--help").stdout
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
        assert option in printed


@pytest.mark.spec("004 REQ-0021")
def test_dev_submits_a_run_and_leaves_with_its_outcome(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOW.replace("{word}", "hello"), encoding="utf-8")
    good = run_to_its_end(tmp_path, "dev", "flows.py", "--port", str(free_port()), "--submit", "greeting", "--once")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "COMPLETED" in good.stdout
    bad = run_to_its_end(tmp_path, "dev", "flows.py", "--port", str(free_port()), "--submit", "missing", "--once")
    assert bad.returncode == 1
    assert "FAILED" in bad.stdout

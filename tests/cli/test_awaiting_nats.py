"""A gateway and a worker that start before NATS wait for it, and report that to clients."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import Served, clean_environment, command, free_port, run_status, serving
from tests.gateway.stand import check_error
from tests.plain_http import NO_TLS

FLOWS = """
from pyoco import Flow, task

@task
def greet():
    return "hello"

flow = Flow("greeting") >> greet
"""
LATER_SEC = 30.0


@pytest.fixture
def late_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """Not there until a test starts it, but its address is known."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.port = free_port()
    yield server
    server.kill()


def until_ready(served: Served) -> None:
    deadline = time.monotonic() + LATER_SEC
    while httpx.get(f"{served.url}/health/ready", verify=NO_TLS).status_code != 200:
        assert time.monotonic() < deadline, "the gateway never found NATS"
        time.sleep(0.05)


@pytest.mark.spec("004 REQ-0001", "004 REQ-0002", "004 ERR-PYOCO-0003", "004 REQ-0020")
def test_a_gateway_without_nats_answers_503_and_serves_when_it_connects(tmp_path: Path, late_nats: NatsServer) -> None:
    port = free_port()
    with serving(tmp_path, "up", "--port", str(port), "--nats-url", late_nats.url, port=port) as served:
        with httpx.Client(base_url=served.url, timeout=10) as client:
            assert client.get("/health").json() == {"status": "ok"}
            ready = client.get("/health/ready")
            assert (ready.status_code, ready.json()["nats"], ready.json()["index_lag_sec"]) == (
                503,
                "disconnected",
                None,
            )
            assert client.get("/").status_code == 200  # the dashboard needs only the gateway
            routes = client.get("/openapi.json").json()["paths"]
            asked = 0
            for path, methods in routes.items():
                if path.startswith("/health"):
                    continue
                for method in methods:
                    answer = client.request(method, path.replace("{", "").replace("}", ""), json={"hidden": True})
                    if answer.status_code != 422:  # a request that is not valid is answered without NATS
                        check_error(answer, 503, "ERR-PYOCO-0003")
                        assert answer.headers["Retry-After"] == "1"
                        asked += 1
            assert asked > 15
            check_error(client.post("/runs", json={"flow_name": "any"}), 503, "ERR-PYOCO-0003")
            late_nats.start()
            until_ready(served)
            assert client.post("/runs", json={"flow_name": "any"}).json()["status"] == "PENDING"
            assert client.get("/metrics").status_code == 200
        code, output = served.stop()
    assert code == 0
    assert output.count('"action": "nats_awaited"') == 1
    assert "nats_arrived" in output


@pytest.mark.spec("004 REQ-0016", "004 ERR-PYOCO-0003")
def test_a_request_is_answered_503_while_keys_cannot_be_checked(tmp_path: Path, late_nats: NatsServer) -> None:
    port, arguments = free_port(), ("up", "--nats-url", late_nats.url)
    with serving(tmp_path, *arguments, "--port", str(port), port=port, PYOCO_HTTP_AUTH_MODE="api_key") as served:
        check_error(httpx.get(f"{served.url}/runs"), 401, "ERR-PYOCO-0014")
        key = f"pyoco_k{'0' * 16}_{'0' * 64}"
        check_error(httpx.get(f"{served.url}/runs", headers={"X-API-Key": key}), 503, "ERR-PYOCO-0003")
        late_nats.start()
        until_ready(served)
        check_error(httpx.get(f"{served.url}/runs", headers={"X-API-Key": key}), 403, "ERR-PYOCO-0015")


@pytest.mark.spec("004 REQ-0021")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_gateway_that_waits_can_be_stopped(
    tmp_path: Path, late_nats: NatsServer, number: signal.Signals, code: int
) -> None:
    port = free_port()
    with serving(tmp_path, "up", "--port", str(port), "--nats-url", late_nats.url, port=port) as served:
        ended, output = served.stop(number)
    assert ended == code
    assert [line for line in output.splitlines() if not line.startswith("{")] == []  # the log, and nothing else


def test_a_nats_that_refuses_the_credentials_is_an_error_at_the_start(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = NatsServer(tmp_path_factory.mktemp("nats"), token="right")  # noqa: S106 a token of this test only
    server.start()
    try:
        ended = subprocess.run(  # noqa: S603 our own command
            command("up", "--port", str(free_port()), "--nats-url", server.url),
            cwd=tmp_path_factory.mktemp("gateway"),
            env=clean_environment(PYOCO_NATS_TOKEN="wrong"),  # noqa: S106 another
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        server.kill()
    assert ended.returncode == 1
    assert "Authorization Violation" in ended.stderr
    assert "ERR-PYOCO-0003" in ended.stderr


@pytest.mark.spec("004 REQ-0008", "004 ERR-PYOCO-0003")
def test_a_worker_without_nats_works_when_it_is_there(tmp_path: Path, late_nats: NatsServer) -> None:
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    worker = [sys.executable, "-m", "pyoco_server.cli.worker", "--nats-url", late_nats.url, "--flows", "flows.py"]
    process = subprocess.Popen(  # noqa: S603 our own command
        worker, cwd=tmp_path, env=clean_environment(), stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stderr is not None
            awaited = next(line for line in process.stderr if "nats_awaited" in line)
            assert '"err_id": "ERR-PYOCO-0003"' in awaited
            late_nats.start()
            port = free_port()
            with serving(tmp_path, "up", "--port", str(port), "--nats-url", late_nats.url, port=port) as served:
                run_id = httpx.post(f"{served.url}/runs", json={"flow_name": "greeting"}).json()["run_id"]
                run_status(served.url, run_id, "COMPLETED")
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            assert process.wait(LATER_SEC) == 0
            assert "nats_awaited" not in rest
        finally:
            process.kill()


@pytest.mark.spec("004 REQ-0021")
def test_a_worker_that_waits_can_be_interrupted(tmp_path: Path, late_nats: NatsServer) -> None:
    worker = [sys.executable, "-m", "pyoco_server.cli.worker", "--nats-url", late_nats.url]
    process = subprocess.Popen(  # noqa: S603 our own command
        worker, cwd=tmp_path, env=clean_environment(), stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stderr is not None
            assert any("nats_awaited" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(LATER_SEC) == 130
        finally:
            process.kill()

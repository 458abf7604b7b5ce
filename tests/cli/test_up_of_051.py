"""Command lines of 0.5.1, and the hints of ``up`` beside another NATS server."""

import asyncio
import socket
import threading
from pathlib import Path

import httpx
import pytest
from nats.js.api import PersistMode, StreamConfig

from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.cli.server import main as server
from tests.adapters.real_nats import NatsServer
from tests.cli.serving import free_port, run_to_its_end, serving


def test_options_without_a_subcommand_start_the_gateway(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, "--port", str(port), "--nats-client-port", str(free_port()), port=port) as served:
        assert httpx.get(f"{served.url}/health/ready").status_code == 200
        code, output = served.stop()
    assert code == 0
    assert [
        line for line in output.splitlines() if '"durability_policy"' in line and "PYOCO_DURABILITY is fast" in line
    ]
    assert output.count('"durability_policy"') == 1


def test_no_arguments_start_the_gateway(tmp_path: Path) -> None:
    port = free_port()
    with (
        NatsServer(tmp_path) as nats,
        serving(tmp_path, port=port, PYOCO_HTTP_PORT=str(port), PYOCO_NATS_URL=nats.url) as served,
    ):
        code, output = served.stop()
    assert code == 0
    assert output.count('"durability_policy"') == 1
    assert "'jetstream { sync_interval: always }'" in output


def test_a_nats_that_confirms_before_it_writes_is_refused(tmp_path: Path) -> None:
    async def make_stream(url: str) -> None:
        async with await connect(url, name="test") as connection:
            config = StreamConfig(name="PYOCO_EVENTS", subjects=["pyoco.events.>"], persist_mode=PersistMode.ASYNC)
            await connection.js.add_stream(config)

    with NatsServer(tmp_path) as nats:
        asyncio.run(make_stream(nats.url))
        ended = run_to_its_end(tmp_path, "up", "--nats-url", nats.url, "--port", str(free_port()))
    assert ended.returncode == 1
    assert "error: The stream 'PYOCO_EVENTS' has persist_mode 'async'" in ended.stderr
    assert "[MSG-PYOCO-0125/ERR-PYOCO-0125]" in ended.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ([], ["up"]),
        (["--port", "1"], ["up", "--port", "1"]),
        (["--dashboard-lang", "ja"], ["--dashboard-lang", "ja", "up"]),
        (["--dashboard-lang=ja", "--host", "::1"], ["--dashboard-lang=ja", "up", "--host", "::1"]),
        (["--dashboard-lang", "ja", "keys", "list"], ["--dashboard-lang", "ja", "keys", "list"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        (["-h"], ["-h"]),
        (["serve"], ["serve"]),
    ],
)
def test_up_is_inserted_where_the_subcommand_is_missing(typed: list[str], meant: list[str]) -> None:
    assert server._with_subcommand(typed) == meant


@pytest.mark.spec("004 REQ-0021", "004 ERR-PYOCO-0018")
@pytest.mark.parametrize("url", ["nats://127.0.0.1:4223", "nats://10.0.0.5:4222"])
def test_a_nats_url_beside_the_nats_it_starts_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert server.main(["up", "--with-nats-bootstrap", "--nats-url", url]) == 1
    said = capsys.readouterr().err
    assert "nats://127.0.0.1:4222" in said
    assert "ERR-PYOCO-0018" in said
    assert "leave out one" in said


def test_the_same_address_as_that_of_the_nats_it_starts_is_accepted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    same = ["--with-nats-bootstrap", "--nats-client-port", "4999", "--nats-url", "nats://127.0.0.1:4999"]
    assert server.main(["up", *same, "--port", "many"]) == 1
    assert "leave out one" not in capsys.readouterr().err


def test_up_beside_a_nats_server_says_how_to_use_it(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as nats:
        ended = run_to_its_end(tmp_path, "up", "--port", str(free_port()), "--nats-client-port", str(nats.port))
    assert ended.returncode == 1
    assert "ERR-PYOCO-0003" in ended.stderr
    assert f"to use it: pyoco-server up --nats-url nats://127.0.0.1:{nats.port}" in ended.stderr
    assert f"--nats-client-port {nats.port + 1}" in ended.stderr


@pytest.mark.parametrize("greeting", [b"", b"220 mail\r\n"])
def test_another_program_on_the_port_is_not_offered_as_nats(tmp_path: Path, greeting: bytes) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        threading.Thread(target=_greet, args=(taken, greeting), daemon=True).start()
        ended = run_to_its_end(tmp_path, "up", "--port", str(free_port()), "--nats-client-port", str(port))
    assert ended.returncode == 1
    assert "--nats-url" not in ended.stderr
    assert f"--nats-client-port {port + 1}" in ended.stderr


def _greet(listening: socket.socket, greeting: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.sendall(greeting)
        connection.recv(1)

"""Common mistakes in all three programs: the error names the remedy, and suggests what may have been meant."""

import shlex
import socket
from pathlib import Path

import pytest

from pyoco_server.cli.client import main as client
from pyoco_server.cli.server import main as server
from pyoco_server.cli.worker import main as worker
from tests.cli.gateway_commands import ACCEPTED, Caller
from tests.cli.serving import free_port, run_to_its_end
from tests.client.scripted_gateway import ScriptedGateway, event, says, silence, snapshot, streams

FLOWS = """
from pyoco import Flow, task

@task
def greet():
    return 1

hello = Flow("hello") >> greet
weather = Flow("forecast") >> greet
"""
MISTAKES = [
    ("pyoco-client flows.py", "invalid choice: 'flows.py'; did you mean 'run flows.py'? (choose from"),
    ("pyoco-client sumbit hello", "invalid choice: 'sumbit'; did you mean 'submit'? (choose from"),
    ("pyoco-client logs r1", "invalid choice: 'logs'; it is pyoco-client events (choose from"),
    ("pyoco-client status r1", "it is pyoco-client get"),
    ("pyoco-client worker", "it is pyoco-worker"),
    ("pyoco-client submit hello name=Ada", "unrecognized arguments: name=Ada; did you mean '--param name=Ada'?"),
    ("pyoco-client submit hello --parms {}", "did you mean '--params'?"),
    ("pyoco-client resume --run-id r1 --node ask", "; leave --run-id out: RUN_ID stands alone; leave --node out: NODE"),
    ("pyoco-client dlq show --sequence 17", "; leave --sequence out: SEQUENCE stands alone"),
    ("pyoco-client list --state FAILED", "did you mean '--status'?"),
    ("pyoco-client run flow.py", "flow.py: No such file or directory; did you mean 'flows.py'?"),
    ("pyoco-client run flows", "did you mean 'flows.py'?"),
    ("pyoco-client run sub/more", "did you mean 'sub/more.py'?"),
    ("pyoco-client run no/such/folder.py", "no/such/folder.py: No such file or directory ["),
    ("pyoco-client run flows.py", "flows.py has several flows: hello, weather ('forecast'); choose one"),
    ("pyoco-client run flows.py --flow helo", "it has: hello, weather ('forecast'); did you mean 'hello'?"),
    ("pyoco-client run flows.py --flow forcast", "did you mean 'forecast'?"),
    (
        "pyoco-client run flows.py --flow-name hello",
        "unrecognized arguments: --flow-name hello; did you mean '--flow'?",
    ),
    ("pyoco-client submit-yaml flow.yaml", "--workflow-file flow.yaml: No such file or directory; did you mean"),
    ("pyoco-server flows.py", "did you mean 'dev flows.py'?"),
    ("pyoco-server start", "it is pyoco-server up, or pyoco-server dev FILE"),
    ("pyoco-server submit hello", "it is pyoco-client submit"),
    ("pyoco-server up --ports 80", "unrecognized arguments: --ports 80; did you mean '--port'?"),
    ("pyoco-server dev flow.py", "there is no file 'flow.py'; did you mean 'flows.py'?"),
    ("pyoco-server dev notes.txt", "'notes.txt' is neither Python (.py) nor a flow.yaml"),
    ("pyoco-worker flows.py", "unrecognized arguments: flows.py; did you mean '--flows flows.py'?"),
    ("pyoco-worker --nats-url ''", "--nats-url: is empty"),
    ("pyoco-server up --nats-url ' '", "--nats-url: is empty"),
    ("pyoco-server up --port ''", "--port: is empty"),
    ("pyoco-server dev flows.py --once", "--once: there is no run to wait for; name a flow with --submit"),
    ("pyoco-server dev flows.py --once --submit ''", "argument --submit: is empty"),
    ("pyoco-server dev flows.py --submit hello --api-key ''", "argument --api-key: is empty"),
    ("pyoco-client --server '' list", "argument --server: is empty"),
    ("pyoco-client list --api-key ''", "argument --api-key: is empty"),
    ("pyoco-worker --flow flows.py", "unrecognized arguments: --flow flows.py; did you mean '--flows'? (see"),
]
PROGRAMS = {"pyoco-client": client.main, "pyoco-server": server.main, "pyoco-worker": worker.main}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("flows.py", "sub/more.py"):
        (tmp_path / name).write_text(FLOWS, encoding="utf-8")
    for name in ("notes.txt", "flows.yaml"):
        (tmp_path / name).write_text("", encoding="utf-8")
    return tmp_path


@pytest.mark.spec("004 REQ-0021", "004 ERR-PYOCO-0018")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("typed", "said"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_the_remedy_is_named(capsys: pytest.CaptureFixture[str], typed: str, said: str) -> None:
    program, *arguments = shlex.split(typed)
    assert PROGRAMS[program](arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "[MSG-PYOCO-0018/ERR-PYOCO-0018]\n" in err
    assert err.splitlines()[-1].startswith("example: pyoco-")
    assert err.count("did you mean") <= 1


@pytest.mark.spec("004 REQ-0021", "004 MSG-PYOCO-0018")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("typed", ["pyoco-client submit", "pyoco-server up --port abc", "pyoco-worker --flow f.py"])
def test_errors_in_a_japanese_locale_are_as_specified(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setenv("LANG", "ja_JP.UTF-8")
    program, *arguments = shlex.split(typed)
    assert PROGRAMS[program](arguments) == 1
    assert "error: CLI引数が不正です（入力形式を確認してください）: " in capsys.readouterr().err


def test_the_variable_that_is_wrong_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOCO_SERVER_URL", "localhost:8000")
    assert client.main(["list"]) == 1
    assert "error: PYOCO_SERVER_URL: 'localhost:8000' is not a URL such as http://" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_flow_is_remarked(
    gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert (folder / "flows.py").is_file()
    gateway.on("POST", "/runs", says(ACCEPTED))
    done = Caller(gateway, capsys)("submit", "flows.py")
    assert (done.code, done.json) == (0, ACCEPTED)  # a flow may be called so
    assert done.err == "note: flows.py is a file; submit takes the name of a flow, submit-yaml a flow.yaml\n"


def test_a_run_that_no_worker_takes_leads_to_a_hint_about_workers(
    gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.on("POST", "/runs", says(ACCEPTED))
    gateway.on("GET", "/runs/r1/watch", streams(event(snapshot("PENDING", 1)), then=silence))
    done = Caller(gateway, capsys)("submit", "hello", "--wait", "--timeout-sec", "1")
    assert done.code == 1
    assert "has not ended within 1 s" in done.err
    assert "hint: no worker has taken it; 'pyoco-client workers' shows" in done.err


def test_dev_on_a_port_that_is_taken_says_how_to_take_another(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run_to_its_end(folder, "dev", "flows.py", "--port", str(port))
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: is the port taken" in ended.stderr
    assert "choose another with --port or PYOCO_HTTP_PORT [MSG-PYOCO-0018/ERR-PYOCO-0018]" in ended.stderr
    assert ended.stderr.splitlines()[-1] == f"example: pyoco-server dev flows.py --port {port + 1}"


def test_keys_without_a_nats_say_where_one_may_be(tmp_path: Path) -> None:
    ended = run_to_its_end(tmp_path, "keys", "list", "--nats-url", f"nats://127.0.0.1:{free_port()}")
    assert ended.returncode == 1
    assert "[MSG-PYOCO-0003/ERR-PYOCO-0003]\nhint: --nats-url or PYOCO_NATS_URL is the address of NATS" in ended.stderr

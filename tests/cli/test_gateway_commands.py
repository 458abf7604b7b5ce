"""Every subcommand that sends requests: success, refusals, no gateway, Ctrl-C."""

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.cli.commands import going
from tests.cli.gateway_commands import ACCEPTED, COMMANDS, DONE, EVERY, LETTER, Caller, Command
from tests.client.scripted_gateway import Answer, ScriptedGateway, refuses, says, silence, snapshot


@pytest.fixture
def call(gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(gateway, capsys)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS.values():
        for name, content in command.files.items():
            (tmp_path / name).write_bytes(content)


@EVERY
def test_it_sends_its_arguments_and_prints_the_answer_as_json(call: Caller, name: str) -> None:
    command = COMMANDS[name]
    call.gateway.on(command.method, command.path, command.script())
    done = call(*command.args)
    assert done.code == 0, done.err
    request = call.gateway.requests[0]
    assert (request.method, request.path, request.query) == (command.method, command.path, command.query)
    if command.body is not None:
        assert request.json == command.body
    assert request.headers["accept-language"] == "en"
    if command.printed is not ...:
        assert done.json == (command.printed if command.printed is not None else command.answer)
        assert done.out.count("\n") == 1  # a document a line
    assert done.err == ""


@EVERY
@pytest.mark.parametrize(
    ("err_id", "status", "message", "action", "hints"),
    [
        (
            "ERR-PYOCO-0014",
            401,
            "an API key is required",
            "send an API key",
            ["hint: set --api-key or PYOCO_API_KEY; 'pyoco-server keys create' creates a key"],
        ),
        ("ERR-PYOCO-0103", 409, "the command was refused", "look at the state as it is now", []),
    ],
)
def test_a_refusal_is_printed_with_all_its_facts(
    call: Caller, name: str, err_id: str, status: int, message: str, action: str, hints: list[str]
) -> None:
    command = COMMANDS[name]
    call.gateway.on(command.method, command.path, refuses(err_id, detail="this very case", reason="NODE_NOT_WAITING"))
    call.gateway.on("GET", "/runs/r1", refuses(err_id, detail="this very case", reason="NODE_NOT_WAITING"))
    done = call(*command.args)
    assert done.code == 1
    assert done.out == ""
    assert done.err.splitlines() == [
        f"error: HTTP {status}: {message}: this very case [{err_id.replace('ERR', 'MSG')}/{err_id}]",
        'details: {"reason": "NODE_NOT_WAITING"}',
        f"action: {action}",
        *hints,
    ]


def test_a_page_of_another_server_is_an_error_without_a_traceback(call: Caller) -> None:
    call.gateway.on("GET", "/runs/r1", Answer(200, b"<html>\x1b[31mhello</html>", {"content-type": "text/html"}))
    done = call("get", "r1")
    assert done.code == 1
    assert "is this the address of a pyoco-server?" in done.err
    assert "\x1b" not in done.err


@EVERY
def test_an_unreachable_gateway_is_an_error_with_a_hint(call: Caller, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = call.without_server("--server", url, *COMMANDS[name].args)
    assert done.code == 1
    first, second, third = done.err.splitlines()
    assert first.startswith(f"error: {url}: ")
    assert first.endswith("[MSG-PYOCO-0001/ERR-PYOCO-0001]")
    assert second == "action: check that the gateway is running and can be reached"
    assert third.startswith(
        "hint: 'pyoco-server dev flows.py' starts one on this machine; --server or PYOCO_SERVER_URL"
    )


@EVERY
def test_ctrl_c(gateway: ScriptedGateway, tmp_path: Path, name: str) -> None:
    command = COMMANDS[name]
    gateway.on(command.method, command.path, Answer(headers={"content-type": "text/event-stream"}, chunks=silence))
    with going(tmp_path, "--server", gateway.url, *command.args) as process:
        until_asked(gateway)
        process.send(signal.SIGINT)
        code, output = process.rest()
    assert code == 130
    assert output == ""


def until_asked(gateway: ScriptedGateway) -> None:
    deadline = time.monotonic() + 30
    while not gateway.requests:
        assert time.monotonic() < deadline, "the command asked for nothing"
        time.sleep(0.01)


@EVERY
def test_help_says_what_is_needed_and_shows_an_example(call: Caller, name: str) -> None:
    done = call.without_server(*name.split(), "--help")
    assert done.code == 0
    assert f"example: pyoco-client {name.split(maxsplit=1)[0]}" in done.out
    for option in ("--server", "--api-key", "--api-key-header", "--lang"):
        assert option in done.out


def test_help_names_all_commands(call: Caller) -> None:
    done = call.without_server("--help")
    assert done.code == 0
    assert all(f"\n    {name.split()[0]} " in done.out for name in COMMANDS)


@EVERY
def test_global_options_may_stand_on_either_side(call: Caller, name: str) -> None:
    command = COMMANDS[name]
    call.gateway.on(command.method, command.path, command.script())
    given = ["--server", call.gateway.url, "--api-key", "secret", "--api-key-header", "X-Team", "--lang", "ja"]
    before = call.without_server(*given, *command.args)
    after = call.without_server(*command.args, *given)
    mixed = call.without_server("--server", "http://127.0.0.1:1", "--lang", "en", *command.args, *given)
    assert [one.code for one in (before, after, mixed)] == [0, 0, 0]
    for request in call.gateway.requests:
        assert request.headers["x-team"] == "secret"
        assert request.headers["accept-language"] == "ja"


def test_the_environment_says_where_and_who(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    call.gateway.on("GET", "/runs", says([]))
    monkeypatch.setenv("PYOCO_SERVER_URL", call.gateway.url)
    monkeypatch.setenv("PYOCO_API_KEY", "from-environment")
    assert call.without_server("list").code == 0
    assert call.without_server("list", "--api-key", "given").code == 0
    assert [request.headers["x-api-key"] for request in call.gateway.requests] == ["from-environment", "given"]


@pytest.mark.parametrize(
    ("given", "locale", "language"),
    [
        (["--lang", "ja"], "en_US.UTF-8", "ja"),
        (["--lang=en"], "ja_JP.UTF-8", "en"),
        ([], "ja_JP.UTF-8", "ja"),
        ([], "de_DE.UTF-8", "en"),
    ],
)
def test_errors_are_in_the_language_of_the_user(
    call: Caller, monkeypatch: pytest.MonkeyPatch, given: list[str], locale: str, language: str
) -> None:
    message, action, hint = {
        "ja": ("runが見つかりません", "run_id確認", "'pyoco-client list' で一覧を表示"),
        "en": ("run not found", "check the run_id", "'pyoco-client list' shows all runs"),
    }[language]
    monkeypatch.setenv("LANG", locale)
    call.gateway.on("GET", "/runs/r1", refuses("ERR-PYOCO-0005"))
    done = call("get", "r1", *given)
    assert done.err == f"error: HTTP 404: {message} [MSG-PYOCO-0005/ERR-PYOCO-0005]\naction: {action}\nhint: {hint}\n"


def test_our_own_errors_have_the_catalogues_words_too(call: Caller) -> None:
    done = call("list", "--limit", "0", "--lang", "ja")
    assert done.err.startswith("error: CLI引数が不正です（入力形式を確認してください）: ")
    assert "ERR-PYOCO-0018" in done.err
    done = call.without_server("--lang", "ja", "--server", "http://127.0.0.1:1", "list")
    assert done.err.startswith("error: 稼働確認に失敗しました: http://127.0.0.1:1: ")
    assert "action: 起動/疎通確認" in done.err


def test_a_run_that_failed_to_be_accepted_may_be_submitted_with_a_key(call: Caller) -> None:
    call.gateway.on("POST", "/runs", refuses("ERR-PYOCO-0003"), says(ACCEPTED))
    assert call("submit", "--flow-name", "f").code == 1
    assert call("submit", "--flow-name", "f", "--idempotency-key", "k").json == ACCEPTED
    assert [request.headers.get("idempotency-key") for request in call.gateway.requests] == [None, "k"]


# --- Cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["CANCELLED", "COMPLETED", "FAILED"])
def test_cancel_waits_for_the_end(call: Caller, end: str) -> None:
    call.gateway.on("POST", "/runs/r1/cancel", says(snapshot("CANCELLING", 2)))
    call.gateway.on("GET", "/runs/r1/watch", refuses("ERR-PYOCO-0102"))
    call.gateway.on("GET", "/runs/r1", says(snapshot("CANCELLING", 2)), says(snapshot(end, 3)))
    done = call("cancel", "--run-id", "r1", "--wait", "--timeout-sec", "30")
    assert done.code == 0
    assert done.json["status"] == end


def test_cancel_waits_no_longer_than_asked(call: Caller) -> None:
    call.gateway.on("POST", "/runs/r1/cancel", says(snapshot("CANCELLING", 2)))
    call.gateway.on("GET", "/runs/r1/watch", Answer(headers={"content-type": "text/event-stream"}, chunks=silence))
    done = call("cancel", "--run-id", "r1", "--wait", "--timeout-sec", "0.3")
    assert done.code == 1
    assert done.json["status"] == "CANCELLING"
    assert "r1 has not ended within 0.3 s" in done.err


@pytest.mark.parametrize("args", [["--wait"], []])
def test_cancel_of_a_run_that_has_ended_returns_at_once(call: Caller, args: list[str]) -> None:
    call.gateway.on("POST", "/runs/r1/cancel", says(DONE))
    assert call("cancel", "--run-id", "r1", *args).code == 0
    assert call.gateway.paths() == ["POST /runs/r1/cancel"]


# --- Tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["get", "tasks", "list", "workers", "dlq list", "dlq show", "wheels", "wheel-history"])
def test_a_table_on_request(call: Caller, name: str) -> None:
    command: Command = COMMANDS[name]
    call.gateway.on(command.method, command.path, command.script())
    done = call(*command.args, "--output", "table")
    assert done.code == 0
    assert "{" not in done.out
    assert done.out.strip()


def test_lists_as_tables(call: Caller) -> None:
    runs = [{"run_id": "a" * 36, "status": "FAILED", "flow_name": "f\x1b[2J", "updated_at": 1e300, "error": "x\ny"}]
    call.gateway.on("GET", "/runs", says({"items": runs, "next_cursor": "n"}))
    done = call("list-vnext", "--output", "table")
    head, row = done.out.splitlines()
    assert head.split() == ["RUN", "ID", "STATUS", "FLOW", "TAG", "SUBMITTED", "UPDATED", "ERROR"]
    assert "a" * 36 in row
    assert "x y" in row
    assert "\x1b" not in row
    assert done.err == "there are more: --cursor n\n"
    call.gateway.on("GET", "/runs", says([]))
    done = call("list", "--output", "table")
    assert (done.code, done.out, done.err) == (0, "", "no runs match\n")


def test_a_run_as_a_table(call: Caller) -> None:
    records = {
        "greet": {"status": "SUCCEEDED", "attempt": 1, "output": "hello", "started_at": 1.0, "ended_at": 2.5},
        "fail": {"status": "FAILED", "attempt": 2, "error": {"code": "E", "message": "broken"}},
        "slow": {"status": "RUNNING", "progress": 40.0, "message": "on its way"},
    }
    wait = {"node_id": "ask", "prompt": {"text": "go on?"}}
    shown = snapshot(
        "FAILED", 3, task_records=records, waiting=[wait], error="why", params={"n": 1}, start_time=0, end_time=70
    )
    call.gateway.on("GET", "/runs/r1", says(shown))
    out = call("get", "r1", "--output", "table").out
    for said in (
        "FAILED  hello  r1  1:10",
        "params: ",
        "error: why",
        "E: broken",
        '"hello"',
        "1.5 s",
        "40 % on its way",
    ):
        assert said in out
    assert "'ask' waits: go on?  (pyoco-client resume r1 ask --input JSON)" in out


def test_a_dead_letter_as_a_table(call: Caller) -> None:
    call.gateway.on("GET", "/dlq/17", says(LETTER))
    out = call("dlq", "show", "17", "--output", "table").out
    assert [line.split()[0] for line in out.splitlines()] == ["sequence", "tag", "reason", "timestamp", "error"]


def test_metrics_are_printed_as_they_are(call: Caller) -> None:
    call.gateway.on("GET", "/metrics", Answer(body=b'# HELP x y\nx{a="b"} 1.0\n'))
    assert call("metrics").out == '# HELP x y\nx{a="b"} 1.0\n'


def test_many_json_documents_are_one_a_line(call: Caller) -> None:
    events = [{"version": number, "text": "a\nb"} for number in range(3)]
    call.gateway.on("GET", "/runs/r1/events", says({"events": events, "version": 3, "next_after": None}))
    assert [json.loads(line) for line in call("events", "r1").out.splitlines()] == events

"""``submit`` and ``submit-yaml``: short forms, the id for scripts, and ``--wait``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.gateway_commands import ACCEPTED, Caller
from tests.cli.screen import Screen
from tests.client.scripted_gateway import Answer, ScriptedGateway, event, says, silence, snapshot, streams

WATCH = "/runs/r1/watch"
RUNNING = snapshot("RUNNING", 2)
DONE = snapshot("COMPLETED", 3, tasks={"greet": "SUCCEEDED"})
ENDS = {
    "COMPLETED": DONE,
    "FAILED": snapshot("FAILED", 3, error="RuntimeError: no"),
    "CANCELLED": snapshot("CANCELLED", 3),
}


@pytest.fixture
def call(gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> Caller:
    gateway.on("POST", "/runs", says(ACCEPTED))
    gateway.on("POST", "/runs/yaml", says(ACCEPTED))
    _ends_with(gateway, DONE)
    return Caller(gateway, capsys)


def _ends_with(gateway: ScriptedGateway, end: Mapping[str, Any]) -> None:
    gateway.on("GET", WATCH, streams(event(RUNNING), event(end), then=silence))
    gateway.on("GET", "/runs/r1", says(end))


def test_the_flow_may_stand_without_its_option(call: Caller) -> None:
    for args in (["hello", "--param", "n=1"], ["--param", "n=1", "hello"], ["--flow-name", "hello", "--param", "n=1"]):
        assert call("submit", *args).json == ACCEPTED
    assert [request.json for request in call.gateway.requests] == [{"flow_name": "hello", "params": {"n": 1}}] * 3


def test_a_file_is_submitted_by_its_own_name_unless_another_is_given(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "nightly.yaml").write_bytes(b"version: 1\n")
    file = str(tmp_path / "nightly.yaml")
    for args in ([file], ["--workflow-file", file], [file, "--flow-name", "daily"]):
        assert call("submit-yaml", *args).json == ACCEPTED
    names = [b"nightly\r\n" in request.body and b"daily" not in request.body for request in call.gateway.requests]
    assert names == [True, True, False]
    assert b"daily\r\n" in call.gateway.requests[-1].body


@pytest.mark.parametrize("command", ["cancel", "get", "tasks", "watch", "events"])
def test_a_run_may_be_named_either_way(call: Caller, command: str) -> None:
    call.gateway.on("POST", "/runs/r1/cancel", says(DONE))
    call.gateway.on("GET", "/runs/r1/tasks", says(DONE))
    call.gateway.on("GET", "/runs/r1/events", says({"events": [], "version": 0, "next_after": None}))
    more = ["--max-events", "1"] if command == "watch" else []
    assert call(command, "r1", *more) == call(command, "--run-id", "r1", *more)
    assert call(command, "r1", *more).code == 0


def test_wheels_may_be_named_either_way(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"\0")
    call.gateway.on("POST", "/wheels", says({"name": "a-1-py3-none-any.whl"}))
    call.gateway.on("DELETE", "/wheels/a.whl", says({"name": "a.whl", "deleted": True}))
    file = str(tmp_path / "a-1-py3-none-any.whl")
    assert call("wheel-upload", file) == call("wheel-upload", "--wheel-file", file)
    assert call("wheel-delete", "a.whl") == call("wheel-delete", "--name", "a.whl")
    assert call.gateway.paths() == ["POST /wheels"] * 2 + ["DELETE /wheels/a.whl"] * 2


# --- What is printed -------------------------------------------------------------------------------------------------


def test_the_id_alone(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"version: 1\n")
    for args in (["submit", "hello"], ["submit-yaml", str(tmp_path / "f.yaml")]):
        assert call(*args, "--output", "id") == (0, "r1\n", "")


def test_a_table_on_request(call: Caller) -> None:
    done = call("submit", "hello", "--output", "table")
    assert done.out.split() == ["run_id", "r1", "status", "PENDING"]
    assert done.err == "watch it: pyoco-client watch r1 --until-terminal\n"


# --- To its end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("COMPLETED", 0, ""),
        ("FAILED", 1, "error: run r1 is FAILED: RuntimeError: no [MSG-PYOCO-0007/ERR-PYOCO-0007]\n"),
        ("CANCELLED", 1, "error: run r1 is CANCELLED [MSG-PYOCO-0007/ERR-PYOCO-0007]\n"),
    ],
)
def test_the_exit_code_is_the_outcome(call: Caller, end: str, code: int, said: str) -> None:
    _ends_with(call.gateway, ENDS[end])
    done = call("submit", "hello", "--wait")
    assert (done.code, done.json["status"]) == (code, end)
    assert done.err == f"submitted run r1\n{said}"
    assert call("submit", "hello", "--wait", "--output", "id") == (code, "r1\n", said)


def test_the_rounds_of_a_loop_are_counted(call: Caller) -> None:
    tallies = {"work": {"ok": 298, "failed": 1, "not_started": 1}, "fetch": {"ok": 2, "failed": 0, "not_started": 0}}
    _ends_with(call.gateway, {**DONE, "task_tallies": tallies})
    assert call("submit", "hello", "--wait").json["task_tallies"] == tallies
    shown = call("get", "r1", "--output", "table").out
    assert "rounds: work 298 ok, 1 failed, 1 not started; fetch 2 ok\n" in shown


def test_a_table_at_the_end(call: Caller) -> None:
    done = call("submit", "hello", "--wait", "--output", "table")
    assert done.code == 0
    assert "COMPLETED  hello  r1" in done.out
    assert done.out.count("COMPLETED") == 1


def test_a_parameter_that_no_task_takes_is_noted_with_a_suggestion(call: Caller) -> None:
    said = {"unused_params": {"nmae": "name", "colour": None}, "wheels": {"a-1-py3-none-any.whl": "0123456789ab"}}
    _ends_with(call.gateway, {**DONE, **said})
    done = call("submit", "hello", "--param", "nmae=Ada", "--wait", "--output", "table")
    assert done.code == 0
    assert done.err == (
        "submitted run r1\n"
        "note: nothing in the flow takes the parameter 'nmae'; did you mean 'name'?\n"
        "note: nothing in the flow takes the parameter 'colour'\n"
    )
    shown = call("get", "r1", "--output", "table").out
    assert "unused params: nmae (did you mean name?), colour\n" in shown
    assert "wheels: a-1-py3-none-any.whl\n" in shown


@pytest.mark.parametrize("odd", ["nmae", ["nmae"], {"nmae": 1}])
def test_unused_params_of_a_wrong_type_are_not_noted(call: Caller, odd: object) -> None:
    _ends_with(call.gateway, {**DONE, "unused_params": odd})
    assert call("submit", "hello", "--wait", "--output", "id") == (0, "r1\n", "")


def test_no_longer_than_asked(call: Caller) -> None:
    call.gateway.on("GET", WATCH, Answer(headers={"content-type": "text/event-stream"}, chunks=silence))
    call.gateway.on("GET", "/runs/r1", says(RUNNING))
    done = call("submit", "hello", "--wait", "--timeout-sec", "0.3")
    assert (done.code, done.out) == (1, "")
    assert "run r1 has not ended within 0.3 s" in done.err
    assert "it continues: pyoco-client watch r1 --until-terminal" in done.err


def test_a_live_view_on_a_terminal(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.on("POST", "/runs", says(ACCEPTED))
    _ends_with(gateway, ENDS["FAILED"])
    code, drawn = Screen(tmp_path, "submit", "hello", "--wait", "--server", gateway.url).end()
    assert code == 1
    assert drawn.startswith("submitted run r1")
    assert "RUNNING  hello  r1" in drawn
    assert "FAILED  hello  r1" in drawn
    assert "ERR-PYOCO-0007" in drawn


def test_no_longer_than_asked_on_a_terminal(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.on("POST", "/runs", says(ACCEPTED))
    gateway.on("GET", WATCH, streams(event(RUNNING), then=silence))
    gateway.on("GET", "/runs/r1", says(RUNNING))
    code, drawn = Screen(tmp_path, "submit", "hello", "--wait", "--timeout-sec", "1", "--server", gateway.url).end()
    assert code == 1
    assert "run r1 has not ended within 1 s" in drawn

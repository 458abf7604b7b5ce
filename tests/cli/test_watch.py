"""``watch`` as JSON, as lines and as a live view, and its exit codes."""

import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from tests.cli.commands import going
from tests.cli.gateway_commands import Caller
from tests.cli.screen import Screen
from tests.client.scripted_gateway import ScriptedGateway, event, refuses, says, silence, snapshot, streams

WATCH = "/runs/r1/watch"
PENDING = snapshot("PENDING", 1, tasks={})
RUNNING = snapshot("RUNNING", 2)
BEAT = snapshot("RUNNING", 2, heartbeat_at=200.0)
DONE = snapshot("COMPLETED", 3, tasks={"greet": "SUCCEEDED"})


@pytest.fixture
def call(gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> Caller:
    gateway.on("GET", WATCH, streams(event(PENDING), event(RUNNING), event(BEAT), event(DONE), then=silence))
    gateway.on("GET", "/runs/r1", says(DONE))
    return Caller(gateway, capsys)


def test_snapshots_one_a_line(call: Caller) -> None:
    done = call("watch", "r1", "--until-terminal")
    assert done.code == 0
    assert [json.loads(line) for line in done.out.splitlines()] == [PENDING, RUNNING, BEAT, DONE]


def test_a_line_for_each_change_of_a_status(call: Caller) -> None:
    done = call("watch", "r1", "--until-terminal", "--output", "status")
    assert done.code == 0
    lines = [line.split(" ", 2)[2] for line in done.out.splitlines()]
    assert lines == ["PENDING", "RUNNING greet=RUNNING", "COMPLETED greet=SUCCEEDED"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d PENDING$", done.out.splitlines()[0])


def test_no_more_than_asked_for(call: Caller) -> None:
    done = call("watch", "r1", "--max-events", "2")
    assert done.code == 0
    assert [json.loads(line) for line in done.out.splitlines()] == [PENDING, RUNNING]


def test_only_what_is_new(call: Caller) -> None:
    done = call("watch", "r1", "--until-terminal", "--since", str(BEAT["updated_at"]))
    assert done.json == DONE
    assert call("watch", "r1", "--until-terminal", "--since", "1e12") == (0, "", "")


def test_watch_with_records(call: Caller) -> None:
    assert call("watch", "r1", "--records", "--max-events", "1").code == 0
    assert ("include", "records") in call.gateway.requests[0].query


def test_no_longer_than_asked_for(call: Caller) -> None:
    call.gateway.on("GET", WATCH, streams(event(RUNNING), then=silence))
    call.gateway.on("GET", "/runs/r1", says(RUNNING))
    done = call("watch", "r1", "--timeout-sec", "0.3")
    assert (done.code, done.json, done.err) == (0, RUNNING, "")
    done = call("watch", "r1", "--timeout-sec", "0.3", "--until-terminal")
    assert (done.code, done.json) == (1, RUNNING)
    assert done.err == "error: run r1 has not ended within 0.3 s\n"


def test_watch_without_a_limit_continues_after_the_end_until_ctrl_c(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.on("GET", WATCH, streams(event(DONE), then=silence))
    with going(tmp_path, "watch", "r1", "--server", gateway.url) as process:
        process.read_until("COMPLETED")
        process.send(signal.SIGINT)
        assert process.rest() == (130, "")


def test_a_broken_stream_and_a_gateway_that_restarts(gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.on(
        "GET", WATCH, streams(event(PENDING), event(RUNNING)[:20], cut_off=True), streams(event(RUNNING), then=silence)
    )
    with going(tmp_path, "watch", "r1", "--until-terminal", "--output", "status", "--server", gateway.url) as process:
        process.read_until("PENDING")
        process.read_until("RUNNING")
        gateway.stop()
        gateway.on("GET", WATCH, refuses("ERR-PYOCO-0003"), streams(event(DONE), then=silence))
        gateway.start()
        code, rest = process.rest()
    assert code == 0
    assert "COMPLETED greet=SUCCEEDED" in rest


def test_a_live_view_on_a_terminal(gateway: ScriptedGateway, tmp_path: Path) -> None:
    waits = snapshot("RUNNING", 2, waiting=[{"node_id": "ask", "prompt": {"text": "go on?"}}])
    gateway.on("GET", WATCH, streams(event(PENDING), event(waits), event(DONE), then=silence))
    gateway.on("GET", "/runs/r1", says(DONE))
    code, drawn = Screen(tmp_path, "watch", "r1", "--until-terminal", "--server", gateway.url).end()
    assert code == 0
    assert "PENDING  hello  r1" in drawn
    assert "'ask' waits: go on?" in drawn
    assert drawn.rindex("COMPLETED  hello  r1") > drawn.rindex("'ask' waits")
    assert re.search(r"greet +SUCCEEDED", drawn)
    assert "{" not in drawn


def test_ctrl_c_in_a_live_view_gives_the_cursor_back(gateway: ScriptedGateway, tmp_path: Path) -> None:
    drawn = threading.Event()

    def first(_: object) -> object:
        drawn.set()
        return streams(event(RUNNING), then=silence)

    gateway.on("GET", WATCH, first)  # type: ignore[arg-type]
    screen = Screen(tmp_path, "watch", "r1", "--server", gateway.url)
    assert drawn.wait(30)
    until_drawn(screen, b"RUNNING")
    os.kill(screen.process.pid, signal.SIGINT)
    code, text = screen.end()
    assert code == 130
    assert "Traceback" not in text
    assert screen.drawn.rindex(b"\x1b[?25h") > screen.drawn.rindex(b"\x1b[?25l")


@pytest.mark.parametrize("args", [["list"], ["get", "r1"], ["submit", "--flow-name", "f"], ["worker-hide", "w"]])
def test_people_at_a_terminal_are_shown_no_json(gateway: ScriptedGateway, tmp_path: Path, args: list[str]) -> None:
    gateway.on("GET", "/runs", says([{"run_id": "r1", "status": "RUNNING"}]))
    gateway.on("GET", "/runs/r1", says(RUNNING))
    gateway.on("POST", "/runs", says({"run_id": "r1", "status": "PENDING"}))
    gateway.on("PATCH", "/workers/w", says({"worker_id": "w", "hidden": True, "updated_at": 1.0}))
    code, drawn = Screen(tmp_path, *args, "--server", gateway.url).end()
    assert code == 0
    assert "{" not in drawn
    assert "r1" in drawn or "worker_id" in drawn


def until_drawn(screen: Screen, text: bytes) -> None:
    deadline = threading.Event()
    for _ in range(3_000):
        if text in screen.drawn:
            return
        deadline.wait(0.01)
    raise AssertionError(f"{text!r} was never drawn")

"""Ctrl-C, SIGTERM and answers to waits during ``pyoco-client run``."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyoco_server.core import decode_event, fold
from tests.cli.commands import call, going, write

COOPERATIVE = """
@task
def work(ctx):
    print("working", flush=True)
    while not ctx.is_cancelled:
        threading.Event().wait(0.01)
flow = Flow() >> work
"""
ASYNC = """
@task
async def work():
    print("working", flush=True)
    await asyncio.Event().wait()
flow = Flow() >> work
"""
STUCK = """
@task
def work():
    print("working", flush=True)
    threading.Event().wait()
flow = Flow() >> work
"""
SLEEPING = """
import time
@task
def work():
    print("working", flush=True)
    time.sleep(60)
flow = Flow() >> work
"""
STUCK_ON_THE_LOOP = STUCK.replace("def work", "async def work")
STUCK_APART = STUCK.replace("flow =", "options(work, isolation='process')\nflow =")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("flow", [COOPERATIVE, ASYNC])
def test_asked_once_a_task_that_listens_ends_the_run(tmp_path: Path, number: int, flow: str) -> None:
    with going(tmp_path, "run", write(tmp_path, "f.py", flow), "--grace-sec", "60") as run:
        run.read_until("working")
        run.send(number)
        run.read_until("Press Ctrl-C again")
        code, rest = run.rest()
    assert code == 130
    assert "EXECUTION_CANCELED - stopped by SIG" in rest
    assert "CANCELED in" in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("flow", [STUCK, STUCK_APART])
def test_a_second_ctrl_c_ends_a_stuck_run_at_once(tmp_path: Path, first: int, flow: str) -> None:
    with going(tmp_path, "run", write(tmp_path, "f.py", flow), "--grace-sec", "60") as run:
        run.read_until("working")
        run.send(first)
        run.read_until("Press Ctrl-C again")
        begin = time.monotonic()
        run.send(signal.SIGINT)
        code, rest = run.rest()
    assert code == 130
    assert time.monotonic() - begin < 10  # long before the grace is over
    assert "Stopping at once." in rest
    assert "EXECUTION_CANCELED - stopped by SIG" in rest
    assert "CANCELED in" in rest
    assert "Traceback" not in rest


def test_a_second_ctrl_c_leaves_a_log_that_is_complete(tmp_path: Path) -> None:
    log = tmp_path / "log"
    file = write(tmp_path, "f.py", SLEEPING)
    with log.open("wb") as stdout, going(tmp_path, "run", file, "--json", "--grace-sec", "60", stdout=stdout) as run:
        run.read_until("working")
        run.send(signal.SIGINT)
        run.read_until("Press Ctrl-C again")
        begin = time.monotonic()
        run.send(signal.SIGINT)
        code, rest = run.rest()
        took = time.monotonic() - begin
    events = [decode_event(line) for line in log.read_bytes().splitlines()]
    assert code == 130
    assert took < 10  # long before the grace is over
    assert "Traceback" not in rest
    assert events[-1].type == "EXECUTION_CANCELED"
    state = fold(events)
    assert state.status == "CANCELED"
    assert state.nodes["work"].status == "CANCELED"


def test_a_second_ctrl_c_ends_even_what_blocks_the_engine(tmp_path: Path) -> None:
    with going(tmp_path, "run", write(tmp_path, "f.py", STUCK_ON_THE_LOOP), "--grace-sec", "60") as run:
        run.read_until("working")
        run.send(signal.SIGINT)
        run.read_until("Press Ctrl-C again")
        run.send(signal.SIGINT)
        code, rest = run.rest()
    assert code == 130
    assert "A task blocks the engine: how the run ended could not be recorded." in rest
    assert "Stopped at once." in rest
    assert "Traceback" not in rest


def test_a_third_ctrl_c_waits_for_nothing(tmp_path: Path) -> None:
    with going(tmp_path, "run", write(tmp_path, "f.py", STUCK_ON_THE_LOOP), "--grace-sec", "60") as run:
        run.read_until("working")
        for said in ("Press Ctrl-C again", "Stopping at once."):
            run.send(signal.SIGINT)
            run.read_until(said)
        run.send(signal.SIGINT)
        code, rest = run.rest()
    assert code == 130
    assert "Stopped at once." in rest


def test_patience_ends_with_the_grace_time(tmp_path: Path) -> None:
    with going(tmp_path, "run", write(tmp_path, "f.py", STUCK), "--grace-sec", "0.1") as run:
        run.read_until("working")
        run.send(signal.SIGINT)
        code, rest = run.rest()
    assert code == 130
    assert "CANCELED in" in rest


WAITING = """
@task
def after(approval): return ["after", approval]
flow = Flow() >> wait("approval", prompt="ok to go?"{more}) >> after
"""


def test_a_wait_that_no_user_can_answer_is_cancelled(tmp_path: Path) -> None:
    done = call(tmp_path, "run", write(tmp_path, "f.py", WAITING.format(more="")))
    assert done.returncode == 1
    assert "'approval' waits for an answer, has no deadline, and stdin is not a terminal" in done.stderr
    assert "CANCELED in" in done.stdout


def test_a_wait_with_a_deadline_waits_for_it(tmp_path: Path) -> None:
    more = ", deadline_sec=0.05, default='late'"
    done = call(tmp_path, "run", write(tmp_path, "f.py", WAITING.format(more=more)))
    assert done.returncode == 0, done.stderr
    assert 'after = ["after", "late"]' in done.stdout


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal: the user's end and the command's."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("typed", "value"), [(b'{"ok": true}\n', '{"ok": true}'), (b"go on\n", '"go on"'), (b"null\n", "null")]
)
def test_a_wait_is_answered_at_the_terminal(tmp_path: Path, typed: bytes, value: str) -> None:
    file = write(tmp_path, "f.py", WAITING.format(more=""))
    with terminal() as (ours, theirs), going(tmp_path, "run", file, stdin=theirs) as run:
        asked = run.read_until("Type JSON or text, then Enter:")
        assert "'approval' waits for an answer (key approval): ok to go?" in asked
        os.write(ours, b"\n")
        run.read_until("type null")  # an empty line approves nothing
        os.write(ours, typed)
        code, rest = run.rest()
    assert code == 0
    assert f'after = ["after", {value}]' in rest


def test_two_open_waits_are_asked_one_after_the_other(tmp_path: Path) -> None:
    text = "flow = Flow() >> (wait('a') & wait('b'))\n"
    with terminal() as (ours, theirs), going(tmp_path, "run", write(tmp_path, "f.py", text), stdin=theirs) as run:
        for answer in (b"1\n", b"2\n"):
            run.read_until("Type JSON or text, then Enter:")
            os.write(ours, answer)
        code, rest = run.rest()
    assert code == 0
    assert {"a = 1", "b = 2"} <= set(rest.splitlines())


def test_the_end_of_the_input_cancels_an_open_wait(tmp_path: Path) -> None:
    file = write(tmp_path, "f.py", WAITING.format(more=""))
    with terminal() as (ours, theirs), going(tmp_path, "run", file, stdin=theirs) as run:
        run.read_until("Type JSON or text, then Enter:")
        os.write(ours, b"\x04")
        code, rest = run.rest()
    assert code == 1
    assert "the run is cancelled" in rest


def test_ctrl_c_while_a_question_is_open(tmp_path: Path) -> None:
    file = write(tmp_path, "f.py", WAITING.format(more=""))
    with terminal() as (_, theirs), going(tmp_path, "run", file, stdin=theirs) as run:
        run.read_until("Type JSON or text, then Enter:")
        run.send(signal.SIGINT)
        code, rest = run.rest()
    assert code == 130
    assert "CANCELED in" in rest


def test_a_reader_that_leaves_ends_the_command_quietly(tmp_path: Path) -> None:
    text = "@task\ndef work(): pass\nflow = Flow() >> work[200]\n"
    file = write(tmp_path, "f.py", text)
    with going(tmp_path, "run", file, stdin=subprocess.DEVNULL) as run:
        run.read_until("EXECUTION_STARTED")
        assert run.process.stdout is not None
        run.process.stdout.close()
        assert run.process.wait(30) == 1

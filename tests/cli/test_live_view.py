"""The live view: recorded runs on a console of fixed width, and the output on a real terminal."""

import contextlib
import io
import os
import pty
import subprocess
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information
from rich.console import Console

from pyoco_server import Engine, RunResult, options, wait
from pyoco_server.cli.local_run.live_view import LiveView
from pyoco_server.cli.local_run.run_tree import RunTree
from pyoco_server.core import Event, ExecutionState
from tests.cli.commands import command, write

Commits = list[tuple[Sequence[Event], ExecutionState]]


def console() -> Console:
    return Console(file=io.StringIO(), width=100, height=50, force_terminal=False, highlight=False)


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def record(flow: Flow, when_waiting: Callable[[Engine, str], None] | None = None) -> tuple[Commits, RunResult]:
    commits: Commits = []
    waits = threading.Event()

    def listen(events: Sequence[Event], state: ExecutionState) -> None:
        commits.append((events, state))
        if state.counts.waiting:
            waits.set()

    with Engine() as engine:
        run_id = engine.start(flow, listener=listen)
        if when_waiting is not None:
            assert waits.wait(10)
            when_waiting(engine, run_id)
        return commits, engine.wait(run_id)


def drawn(commits: Commits, *, seconds_later: float = 0.0, limit: int = 100) -> list[str]:
    tree = RunTree()
    for events, state in commits:
        tree.take(events, state)
    last: datetime = commits[-1][0][-1].occurred_at
    shown = console()
    shown.print(tree.render(last + timedelta(seconds=seconds_later), limit=limit))
    return [line.rstrip() for line in text_of(shown).splitlines()]


def up_to(commits: Commits, event_type: str) -> Commits:
    """The commits to the first that has such an event, of a node that does something."""
    at = next(at for at, (events, _) in enumerate(commits) if any(_shows(event, event_type) for event in events))
    return commits[: at + 1]


def _shows(event: Event, event_type: str) -> bool:
    return event.type == event_type and not getattr(event.payload, "node_id", "").startswith(":")


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines if f" {name}" in line)


def flaky_flow() -> Flow:
    tries: list[int] = []

    @task  # type: ignore[untyped-decorator]
    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "done"

    @task  # type: ignore[untyped-decorator]
    def broken() -> None:
        raise RuntimeError("no good")

    @task  # type: ignore[untyped-decorator]
    def never() -> None:
        pass

    return Flow("shop") >> options(flaky, retries=2, backoff=0.0) >> broken >> never


def test_a_recorded_run_that_failed() -> None:
    commits, _ = record(flaky_flow())
    lines = drawn(commits)
    assert lines[0].startswith("shop  FAILED  2/3  ")
    assert '✓ flaky  attempt 2/3  → "done"  ' in row(lines, "flaky")
    assert "✗ broken  RuntimeError: no good  " in row(lines, "broken")
    assert row(lines, "never").endswith("⊘ never  did not run")
    assert [line.split()[2] for line in lines[1:]] == ["flaky", "broken", "never"]
    assert ":start" not in "\n".join(lines)


def test_the_same_run_on_its_way() -> None:
    commits, _ = record(flaky_flow())
    lines = drawn(up_to(commits, "NODE_STARTED"), seconds_later=75.0)
    assert lines[0].startswith("shop  ACTIVE  0/3  1:15")
    assert row(lines, "flaky").endswith("flaky  1:15")
    assert row(lines, "flaky")[4] in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
    assert row(lines, "never").endswith("· never")
    failed_once = drawn(up_to(commits, "NODE_FAIL_REPORTED"))
    assert "flaky  failed, will try again: ValueError: not yet" in row(failed_once, "flaky")


def test_a_waiting_node_with_its_key_and_prompt() -> None:
    def answer(engine: Engine, run_id: str) -> None:
        engine.resume(run_id, "approval", {"ok": True})

    flow = Flow("shop") >> wait("approval", prompt="send it?", deadline_sec=3600)
    commits, _ = record(flow, answer)
    assert "? approval  waits key=approval prompt=send it? until " in row(drawn(up_to(commits, "NODE_WAITING")), "appr")
    assert '✓ approval  → {"ok": true}' in row(drawn(commits), "approval")


def looping() -> Flow:
    @task  # type: ignore[untyped-decorator]
    def step() -> None:
        pass

    @task  # type: ignore[untyped-decorator]
    def last() -> None:
        pass

    return Flow("loop") >> step[30] >> last


def test_nodes_of_a_block_are_below_it() -> None:
    commits, _ = record(looping())
    lines = drawn(commits)
    assert "✓ :repeat" in lines[1]
    assert "│   ├── ✓ [0]/step" in lines[2]
    assert "✓ last" in lines[-1]


def test_a_tree_too_tall_for_the_screen_shows_what_matters() -> None:
    commits, _ = record(looping())
    in_the_middle = drawn(commits[: len(commits) // 2], limit=8)
    assert len(in_the_middle) <= 10
    assert ":repeat" in in_the_middle[1]
    assert in_the_middle[-1].endswith("more")
    after = drawn(commits, limit=8)
    assert "✓ :repeat" in after[1]
    assert "✓ last" in row(after, "last")


def test_progress_is_a_bar() -> None:
    @task  # type: ignore[untyped-decorator]
    def fetch(ctx: object) -> None:
        ctx.progress(25, "page 1")  # type: ignore[attr-defined]

    commits, _ = record(Flow("shop") >> fetch)
    lines = drawn(up_to(commits, "NODE_PROGRESS_REPORTED"))
    assert "fetch  ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  25 % page 1" in row(lines, "fetch")


def test_the_view_leaves_tree_results_and_errors_behind() -> None:
    commits, result = record(flaky_flow())
    out, errors = console(), console()
    view = LiveView(out, errors, now=lambda: commits[-1][0][-1].occurred_at)
    for events, state in commits:
        view.show(events, state)
    view.note("[a note]")
    view.end(result)
    view.close()
    shown = text_of(out)
    assert shown.count("✗ broken") == 1
    assert "[a note]" in shown
    assert 'flaky = "done"' in shown
    assert "FAILED in" in shown
    assert "'broken' failed: RuntimeError: no good" in text_of(errors)
    assert 'raise RuntimeError("no good")' in text_of(errors)


def test_a_question_makes_the_tree_stand_still() -> None:
    flow = Flow("shop") >> wait("approval", prompt="send it?", deadline_sec=0.01, default=1)
    commits, result = record(flow)
    out = console()
    view = LiveView(out, console(), now=lambda: commits[-1][0][-1].occurred_at)
    asked = up_to(commits, "NODE_WAITING")
    for events, state in asked:
        view.show(events, state)
    view.ask(asked[-1][1].nodes["approval"])
    assert "'approval' waits for an answer (key approval): send it?" in text_of(out)
    for events, state in commits[len(asked) :]:
        view.show(events, state)
    view.ask(None)
    view.end(result)
    assert "✓ approval  → 1" in text_of(out)


def test_a_real_terminal_gets_the_tree(tmp_path: Path) -> None:
    write(tmp_path, "f.py", "@task\ndef greet(): return 'hello'\nflow = Flow('shop') >> greet\n")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(  # noqa: S603 our own command
        command("run", "f.py"), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = _all_of(ours)
    assert process.returncode == 0
    assert "✓ greet" in seen
    assert "COMPLETED" in seen
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1, "the cursor was hidden and came back"


def _all_of(descriptor: int) -> str:
    """Read a terminal until its last user closes it, which is an error on Linux."""
    seen = b""
    with os.fdopen(descriptor, "rb", buffering=0) as stream, contextlib.suppress(OSError):
        while piece := stream.read(65_536):
            seen += piece
    return seen.decode()

"""Calls that take too long, do not end, or report too much progress, through the engine."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine, options
from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.core import EventType, NodeStatus
from pyoco_server.core.payloads import NodeProgressReported
from pyoco_server.testing import FlowTester, assert_attempts, assert_completed
from tests.adapters.executor import tasks
from tests.app.runtime.flows import wait_until
from tests.app.runtime.pyoco_side import step


@pytest.fixture
def executor() -> LocalExecutor:
    return LocalExecutor(threads=1, processes=1)


@pytest.fixture
def engine(executor: LocalExecutor, tmp_path: Path) -> Iterator[Engine]:
    with Engine(executor=executor, artifacts=tmp_path, cancel_grace_sec=0.1) as made:
        yield made


def is_running(engine: Engine, run_id: str, node_id: str) -> bool:
    return engine.get(run_id).nodes[node_id].status is NodeStatus.RUNNING


def error_of(engine: Engine, run_id: str, node_id: str) -> dict[str, Any]:
    return engine.wait(run_id).state.nodes[node_id].error or {}


class Stubborn:
    """A coroutine that ends when the test says so, and not when it is cancelled."""

    def __init__(self, attempts: int = 1) -> None:
        self.began = threading.Event()
        self.cancels = 0
        self._attempts = attempts
        self._end = False

    def end(self) -> None:
        self._end = True

    async def __call__(self) -> str:
        self.began.set()
        self._attempts -= 1
        is_stubborn = self._attempts >= 0
        while is_stubborn and not self._end:
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                self.cancels += 1
        return "done"


# --- Timeouts --------------------------------------------------------------------------------------------------------


def test_the_wait_for_a_thread_is_no_part_of_a_timeout(engine: Engine) -> None:
    first = engine.start(Flow() >> step(lambda: time.sleep(0.4), "slow"))
    wait_until(lambda: is_running(engine, first, "slow"))
    second = engine.start(Flow() >> step(lambda: "in time", "quick", timeout_sec=0.2))
    assert engine.wait(second).results == {"quick": "in time"}
    assert engine.wait(first).status == "COMPLETED"


def test_loading_what_a_process_needs_is_no_part_of_a_timeout(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(0.7)\ndef work(): return 'in time'\n")
    monkeypatch.syspath_prepend(tmp_path)
    import slow_to_load  # type: ignore[import-not-found]  # noqa: PLC0415 written above

    work = options(step(slow_to_load.work), isolation="process", timeout_sec=0.5)
    assert engine.run(Flow() >> work).results == {"work": "in time"}
    del sys.modules["slow_to_load"]


def test_loading_that_never_ends_counts_against_the_timeout(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_loads.py").write_text(
        "import threading, time\n"
        "if any(thread.name == 'pyoco-child-listener' for thread in threading.enumerate()):\n"
        "    time.sleep(60)\n"
        "def work(): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("pyoco_server.adapters.executor.processes.child_handle.LOADING_SEC", 0.5)
    import never_loads  # type: ignore[import-not-found]  # noqa: PLC0415 written above

    run_id = engine.start(Flow() >> options(step(never_loads.work), isolation="process", timeout_sec=0.1))
    assert error_of(engine, run_id, "work")["code"] == "TIMEOUT"
    del sys.modules["never_loads"]


def test_a_process_that_takes_too_long_is_ended(engine: Engine, tmp_path: Path) -> None:
    late = step(tasks.swallow, "late", inputs={"marks": str(tmp_path)}, timeout_sec=0.1)
    run_id = engine.start(Flow() >> options(late, isolation="process"))
    assert error_of(engine, run_id, "late")["code"] == "TIMEOUT"
    pid = int((tmp_path / "running").read_text())
    assert (tmp_path / "cancelled").exists()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_timeout_error_of_the_function_is_raised_as_it_is(engine: Engine) -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    run_id = engine.start(Flow() >> step(impatient, "t", timeout_sec=30))
    assert error_of(engine, run_id, "t")["code"] == "TimeoutError"


def test_a_result_that_comes_too_late_is_dropped(engine: Engine) -> None:
    async def late() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "late"

    run_id = engine.start(Flow() >> step(late, "t", timeout_sec=0.02))
    assert error_of(engine, run_id, "t")["code"] == "TIMEOUT"


def test_virtual_time_can_be_moved_past_a_timeout() -> None:
    stuck, began = threading.Event(), threading.Event()

    def work() -> str:
        if not began.is_set():
            began.set()
            stuck.wait(20)
        return "at last"

    with FlowTester() as tester:
        run_id = tester.start(Flow() >> options(step(work), timeout_sec=3600, retries=1))
        tester.wait_until_running(run_id, "work")
        assert began.wait(5)
        tester.advance(3600, overtake=True)
        result = tester.wait(run_id)
        assert_completed(result)
        assert_attempts(result, "work", 2)
        stuck.set()


# --- Coroutines that do not end --------------------------------------------------------------------------------------


def test_a_coroutine_that_swallows_its_timeout_is_abandoned_and_logged_once(
    engine: Engine, executor: LocalExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn(attempts=1)
    result = engine.run(Flow() >> options(step(stubborn, "t", timeout_sec=0.05), retries=1) >> step(lambda: 1, "next"))
    assert (result.status, result.results) == ("COMPLETED", {"t": "done", "next": 1})
    assert executor.abandoned == 1
    assert [record.__dict__["action"] for record in caplog.records] == ["coroutine_abandoned"]
    assert stubborn.cancels == 1
    stubborn.end()
    wait_until(lambda: executor.abandoned == 0)


def test_a_coroutine_that_swallows_a_cancel_is_abandoned(
    engine: Engine, executor: LocalExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn()
    run_id = engine.start(Flow() >> step(stubborn, "t"))
    assert stubborn.began.wait(5)
    engine.cancel(run_id)
    assert engine.wait(run_id).status == "CANCELED"
    wait_until(lambda: executor.abandoned == 1)
    assert stubborn.cancels == 1
    stubborn.end()
    wait_until(lambda: executor.abandoned == 0)
    actions = [record.__dict__["action"] for record in caplog.records]
    assert actions == ["cancel_grace_over", "coroutine_abandoned"]


def test_a_cancelled_coroutine_has_the_whole_grace_period_to_clean_up(
    executor: LocalExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    began, cleaned = threading.Event(), threading.Event()

    async def tidy() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.7)  # longer than its caller waits
            cleaned.set()

    with Engine(executor=executor, cancel_grace_sec=20) as engine:
        run_id = engine.start(Flow() >> step(tidy, "t"))
        assert began.wait(5)
        engine.cancel(run_id)
        assert engine.wait(run_id).status == "CANCELED"
    assert cleaned.is_set()
    assert (executor.abandoned, caplog.records) == (0, [])


def test_the_value_that_a_cancelled_coroutine_returns_is_recorded(executor: LocalExecutor) -> None:
    began = threading.Event()

    async def finishing() -> str:
        began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "finished"

    with Engine(executor=executor, cancel_grace_sec=20) as engine:
        run_id = engine.start(Flow() >> step(finishing, "t"))
        assert began.wait(5)
        engine.cancel(run_id)
        result = engine.wait(run_id)
    assert (result.status, result.state.nodes["t"].status) == ("CANCELED", NodeStatus.SUCCEEDED)


def test_a_call_cancelled_while_it_waits_for_a_thread_never_begins(engine: Engine) -> None:
    gate, calls = threading.Event(), list[int]()
    first = engine.start(Flow() >> step(lambda: gate.wait(20), "holds"))
    wait_until(lambda: is_running(engine, first, "holds"))
    second = engine.start(Flow() >> step(lambda: calls.append(1), "waits"))
    wait_until(lambda: is_running(engine, second, "waits"))
    engine.cancel(second)
    assert engine.wait(second).status == "CANCELED"
    gate.set()
    assert engine.wait(first).status == "COMPLETED"
    assert engine.run(Flow() >> step(lambda: "free", "t")).results == {"t": "free"}
    assert calls == []


# --- Progress --------------------------------------------------------------------------------------------------------


def reported(engine: Engine, run_id: str) -> list[float | None]:
    return [
        event.payload.progress
        for event in engine.events(run_id)
        if event.type is EventType.NODE_PROGRESS_REPORTED and isinstance(event.payload, NodeProgressReported)
    ]


def test_frequent_progress_is_thinned_out_in_the_log_and_its_last_report_is_kept(engine: Engine) -> None:
    def flood(ctx: Any) -> float:
        began = time.monotonic()
        for number in range(20_000):
            ctx.progress(number / 200)
        while time.monotonic() - began < 0.5:  # long enough for the first to be written on the way
            ctx.progress(99.999)
        ctx.progress(100, "all")
        return time.monotonic() - began

    result = engine.run(Flow() >> step(flood))
    percents = reported(engine, result.run_id)
    assert 2 <= len(percents) <= 3 + 10 * result.results["flood"]
    assert percents == sorted(percents, key=lambda percent: percent or 0)
    assert percents[-1] == 100
    assert result.state.nodes["flood"].progress_message == "all"


def test_slow_progress_is_logged_completely(engine: Engine) -> None:
    seen = threading.Event()

    def steps(ctx: Any) -> None:
        for percent in (25, 50, 75, 100):
            ctx.progress(percent)
            assert seen.wait(5)
            seen.clear()

    run_id = engine.start(Flow() >> step(steps), listener=lambda events, _: _note_progress(events, seen))
    assert engine.wait(run_id).status == "COMPLETED"
    assert reported(engine, run_id) == [25, 50, 75, 100]


def _note_progress(events: Any, seen: threading.Event) -> None:
    if any(event.type is EventType.NODE_PROGRESS_REPORTED for event in events):
        seen.set()


def test_messages_of_an_abandoned_attempt_are_dropped(executor: LocalExecutor, tmp_path: Path) -> None:
    second, spoken = threading.Event(), threading.Event()
    attempts: list[int] = []

    def work(ctx: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            assert second.wait(5)
            ctx.progress(99, "from the past")
            spoken.set()
        else:
            ctx.progress(10)
            second.set()
            assert spoken.wait(5)

    with Engine(executor=executor, artifacts=tmp_path) as engine:
        result = engine.run(Flow() >> options(step(work, timeout_sec=1), retries=1, backoff=0.001, interrupt="flag"))
        assert (result.status, reported(engine, result.run_id)) == ("COMPLETED", [10])


def test_invalid_progress_is_an_error_in_a_process_too(engine: Engine) -> None:
    run_id = engine.start(Flow() >> options(step(tasks.report_nonsense, "t"), isolation="process"))
    assert error_of(engine, run_id, "t")["message"] == "progress must be between 0 and 100, not 200"


# --- Results that cannot travel --------------------------------------------------------------------------------------


def with_a_lock(task: Any) -> Flow:
    lock = step(threading.Lock, "lock")
    return Flow() >> lock >> step(lambda: {"a": 1}, "good") >> options(step(task, "t"), isolation="process")


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (tasks.names_of_results, ["good", "lock"]),
        (tasks.read_good, [{"a": 1}, {"a": 1}, 1]),
        (tasks.replace_result, 5),
    ],
)
def test_a_result_that_cannot_travel_fails_no_task_that_does_not_read_it(
    engine: Engine, task: Any, expected: object
) -> None:
    assert engine.run(with_a_lock(task), {"n": 1}).results["t"] == expected


@pytest.mark.parametrize(
    "task", [tasks.read_result, tasks.get_result, tasks.read_all_results, tasks.copy_results, tasks.pop_result]
)
def test_a_task_that_reads_a_result_that_cannot_travel_gets_an_error(engine: Engine, task: Any) -> None:
    error = error_of(engine, engine.start(with_a_lock(task), {"n": 1}), "t")
    assert error["code"] == "NotPicklableError"
    assert error["message"] == (
        "Cannot send results['lock'], a lock between processes: TypeError: cannot pickle '_thread.lock' object. "
        "Let the task that made it return plain data, or run this one without isolation: process."
    )


def test_an_item_that_cannot_travel_fails_no_task_that_does_not_read_it(engine: Engine) -> None:
    def flow(task: Any) -> Flow:
        body = options(step(task, "t"), isolation="process")
        return Flow() >> step(lambda: [threading.Lock()], "locks") >> body["$ctx.results.locks as lock"]

    assert engine.run(flow(tasks.iteration)).results["t"] == 1
    run_id = engine.start(flow(tasks.item))
    assert engine.wait(run_id).status == "FAILED"
    failure = engine.get(run_id).failure or {}
    assert "the item of the loop foreach:lock[0], a lock" in str(
        engine.get(run_id).nodes[failure["failedNodeId"]].error
    )

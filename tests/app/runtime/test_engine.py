"""What a flow author can expect of the engine."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper, task  # type: ignore[import-untyped]

from pyoco_server import Backoff, Engine, options, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.runtime.control_flow import ChildNodes
from pyoco_server.app.runtime.driver import RunDriver
from pyoco_server.app.runtime.node_executor import NodeExecutor
from pyoco_server.app.runtime.run import Run
from pyoco_server.core import CommandRejected, DecodeError, EventType, NodeStatus
from pyoco_server.engine import UnknownRunError
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.yaml.document import read_flow_yaml
from tests.app.runtime.flows import Calls, approval_flow, fan_flow, wait_until


def step(function: Any, name: str | None = None) -> TaskWrapper:
    return TaskWrapper(Task(func=function, name=name or function.__name__))


def status_of(engine: Engine, run_id: str, node_id: str) -> NodeStatus:
    return engine.get(run_id).nodes[node_id].status


@pytest.fixture
def engine() -> Any:
    with Engine(cancel_grace_sec=0.3) as made:
        yield made


# --- Running ---------------------------------------------------------------------------------------------------------


def test_results_are_handed_on_by_name(engine: Engine) -> None:
    result = engine.run(fan_flow(Calls()), {"n": 1})
    assert (result.status, dict(result.results)) == ("COMPLETED", {"seed": 1, "left": 2, "right": 3, "total": 5})


def test_coroutines_run_beside_plain_functions(engine: Engine) -> None:
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 20

    def plus(fetch: int) -> int:
        return fetch + 1

    assert engine.run(Flow() >> step(fetch) >> step(plus)).results["plus"] == 21


def test_branches_run_at_the_same_time(engine: Engine) -> None:
    meeting = threading.Barrier(3, timeout=60)
    branches = [step(meeting.wait, f"branch{number}") for number in range(3)]
    assert engine.run(Flow() >> branches).status == "COMPLETED"


def test_the_users_tasks_are_left_alone(engine: Engine) -> None:
    calls = Calls()
    shared = calls.task("shared", 1)
    before = vars(shared.task).copy()
    one, other = Flow("one") >> shared, Flow("other") >> shared
    ids = [engine.start(flow) for flow in (one, other, one)]
    assert [engine.wait(run_id).status for run_id in ids] == ["COMPLETED"] * 3
    assert vars(shared.task) == before


def test_a_failed_attempt_is_tried_again_after_its_pause(engine: Engine) -> None:
    failures = iter([ValueError("once"), ValueError("twice"), None])

    def flaky() -> str:
        failure = next(failures)
        if failure is not None:
            raise failure
        return "third time"

    patient = options(step(flaky), retries=2, backoff=Backoff(delay_sec=0.001))
    result = engine.run(Flow() >> patient)
    assert (result.results["flaky"], result.state.nodes["flaky"].attempt) == ("third time", 3)


def test_a_failure_is_reported_with_its_traceback(engine: Engine) -> None:
    def broken() -> None:
        raise KeyError("missing")

    result = engine.run(Flow() >> step(broken))
    error = result.state.nodes["broken"].error or {}
    assert (result.status, error["code"], error["message"]) == ("FAILED", "KeyError", "'missing'")
    assert "in broken" in error["detail"]["traceback"]
    assert (result.state.failure or {})["failedNodeId"] == "broken"


def test_progress_is_on_record(engine: Engine) -> None:
    def slow(ctx: Any) -> None:
        for percent in (10, 50, 90):
            ctx.progress(percent, f"{percent} done")

    result = engine.run(Flow() >> step(slow))
    reported = [event for event in engine.events(result.run_id) if event.type is EventType.NODE_PROGRESS_REPORTED]
    assert 1 <= len(reported) <= 3
    assert result.state.nodes["slow"].progress == 90


def test_progress_outside_its_range_is_the_tasks_error(engine: Engine) -> None:
    result = engine.run(Flow() >> step(lambda ctx: ctx.progress(101), "wild"))
    assert "between 0 and 100" in (result.state.nodes["wild"].error or {})["message"]


def test_artifacts_have_a_directory_a_run(tmp_path: Any) -> None:
    with Engine(artifacts=tmp_path) as made:
        result = made.run(Flow() >> step(lambda ctx: ctx.save_artifact("report.txt", "hello"), "save"))
    assert (tmp_path / result.run_id / "report.txt").read_text() == "hello"
    assert [path.name for path in tmp_path.iterdir()] == [result.run_id]


def test_a_listener_receives_every_commit_in_order(engine: Engine) -> None:
    received: list[Any] = []
    run_id = engine.start(fan_flow(Calls()), {"n": 1}, listener=lambda events, _: received.extend(events))
    engine.wait(run_id)
    assert received == engine.events(run_id)


def test_from_another_event_loop(engine: Engine) -> None:
    result = asyncio.run(engine.run_async(fan_flow(Calls()), {"n": 2}))
    assert result.results["total"] == 7


def test_an_unknown_run_is_named(engine: Engine) -> None:
    for ask in (engine.get, engine.events, engine.wait):
        with pytest.raises(UnknownRunError, match="unknown"):
            ask("unknown")
    assert engine.cancel("unknown") is False


def test_a_flow_with_a_cycle_is_refused(engine: Engine) -> None:
    one, other = step(lambda: 1, "one"), step(lambda: 2, "other")
    flow = Flow("round") >> one >> other
    one.task.dependencies.add(other.task)
    with pytest.raises(FlowError, match="cycle"):
        engine.run(flow)


# --- Waiting ---------------------------------------------------------------------------------------------------------


def test_a_wait_returns_the_value_it_is_resumed_with(engine: Engine) -> None:
    run_id = engine.start(approval_flow(Calls()))
    wait_until(lambda: status_of(engine, run_id, "approval") is NodeStatus.WAITING)
    waiting = engine.get(run_id).nodes["approval"]
    assert (waiting.wait_key, waiting.prompt) == ("approval", {"question": "publish?"})
    engine.resume(run_id, "approval", {"by": "ann"})
    assert engine.wait(run_id).results["publish"] == {"by": "ann"}


def test_a_node_that_does_not_wait_cannot_be_resumed(engine: Engine) -> None:
    run_id = engine.start(approval_flow(Calls()))
    wait_until(lambda: status_of(engine, run_id, "approval") is NodeStatus.WAITING)
    with pytest.raises(CommandRejected):
        engine.resume(run_id, "draft")
    with pytest.raises(CommandRejected, match="resumeKey"):
        engine.resume(run_id, "approval", key="another")
    engine.cancel(run_id)


def test_a_deadline_takes_the_default_or_fails(engine: Engine) -> None:
    late = Flow() >> wait("answer", deadline_sec=0.01, default=7)
    never = Flow() >> wait("answer", deadline_sec=0.01)
    assert engine.run(late).results["answer"] == 7
    assert (engine.run(never).state.nodes["answer"].error or {})["code"] == "WAIT_DEADLINE"


def test_other_branches_go_on_while_one_waits(engine: Engine) -> None:
    calls = Calls()
    run_id = engine.start(Flow() >> [wait("one"), wait("two"), calls.task("work", 1)])
    wait_until(lambda: calls.count("work") == 1)
    engine.resume(run_id, "two", 2)
    engine.resume(run_id, "one", 1)
    assert dict(engine.wait(run_id).results) == {"one": 1, "two": 2, "work": 1}


# --- Cancelling ------------------------------------------------------------------------------------------------------


def test_a_task_that_polls_for_a_cancel_stops_by_itself(engine: Engine) -> None:
    begun = threading.Event()

    def polite(ctx: Any) -> str:
        begun.set()
        while not ctx.is_cancelled:
            time.sleep(0.001)
        return "tidied up"

    run_id = engine.start(Flow() >> options(step(polite), interrupt="flag"))
    begun.wait(5)
    assert engine.cancel(run_id, "enough") is True
    result = engine.wait(run_id)
    node = result.state.nodes["polite"]
    assert (result.status, node.status, node.cancellation_applied) == ("CANCELED", NodeStatus.SUCCEEDED, True)


def test_a_coroutine_is_interrupted_where_it_awaits() -> None:
    async def endless() -> None:
        await asyncio.sleep(3600)

    with Engine(cancel_grace_sec=3600) as engine:
        run_id = engine.start(Flow() >> step(endless))
        wait_until(lambda: status_of(engine, run_id, "endless") is NodeStatus.RUNNING)
        engine.cancel(run_id)
        assert engine.wait(run_id).status == "CANCELED"


@task  # type: ignore[untyped-decorator]
def busy(ctx: Any) -> None:
    """At module level, because a process must find it."""
    ctx.progress(1, str(os.getpid()))
    while True:
        pass


def test_a_stuck_thread_does_not_keep_its_run_from_ending(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """It blocks in C, where nothing can interrupt it, until after the run has ended."""
    released = threading.Event()
    run_id = engine.start(Flow() >> step(released.wait, "stuck"))
    wait_until(lambda: status_of(engine, run_id, "stuck") is NodeStatus.RUNNING)
    engine.cancel(run_id)
    assert engine.wait(run_id).status == "CANCELED"
    released.set()
    assert [record.__dict__["err_id"] for record in caplog.records] == ["ERR-PYOCO-0021"]


def test_a_busy_process_is_really_gone(engine: Engine) -> None:
    run_id = engine.start(Flow() >> options(busy, isolation="process"))
    wait_until(lambda: engine.get(run_id).nodes["busy"].progress == 1)
    pid = int(engine.get(run_id).nodes["busy"].progress_message or 0)
    engine.cancel(run_id)
    assert engine.wait(run_id).status == "CANCELED"  # by itself it would never end
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_timeout_frees_the_slot(engine: Engine) -> None:
    result = engine.run(Flow() >> options(step(lambda: time.sleep(2), "late"), timeout_sec=0.02))
    assert (result.state.nodes["late"].error or {})["code"] == "TIMEOUT"


def test_a_parked_run_is_cancelled_at_once(engine: Engine) -> None:
    run_id = engine.start(approval_flow(Calls()))
    wait_until(lambda: status_of(engine, run_id, "approval") is NodeStatus.WAITING)
    engine.cancel(run_id, "no")
    result = engine.wait(run_id)
    assert (result.status, result.state.nodes["publish"].status) == ("CANCELED", NodeStatus.CANCELED)


def test_a_cancel_between_attempts_does_not_wait_for_the_pause(engine: Engine) -> None:
    hopeless = options(step(lambda: 1 / 0, "hopeless"), retries=5, backoff=3600.0)
    run_id = engine.start(Flow() >> hopeless)
    wait_until(lambda: engine.get(run_id).nodes["hopeless"].failures == 1)
    engine.cancel(run_id)
    assert engine.wait(run_id).status == "CANCELED"


# --- Many ------------------------------------------------------------------------------------------------------------


def mixed(number: int) -> Flow:
    """A wait, a retry that works out, or a plain fan, by number."""
    failing = iter([True, False])

    def flaky() -> int:
        if next(failing):
            raise ValueError("once")
        return number

    flow = Flow(f"mixed{number % 3}")
    if number % 3 == 0:
        return flow >> step(lambda: number, "before") >> wait("gate") >> step(lambda: number, "after")
    if number % 3 == 1:
        return flow >> options(step(flaky), retries=1, backoff=0.001)
    return flow >> [step(lambda: number, "a"), step(lambda: number, "b")] >> step(lambda: number, "c")


def test_two_hundred_runs_at_once_leave_nothing_behind() -> None:
    gc.collect()
    threads = threading.active_count()
    with Engine(cancel_grace_sec=0.5, threads=16) as engine:
        ids = [engine.start(mixed(number)) for number in range(200)]
        for number, run_id in enumerate(ids):
            if number % 3 == 0:
                wait_until(lambda run_id=run_id: status_of(engine, run_id, "gate") is NodeStatus.WAITING)  # type: ignore[misc]
                engine.cancel(run_id) if number % 2 else engine.resume(run_id, "gate", number)
        statuses = [engine.wait(run_id).status for run_id in ids]
        assert engine._runs == {}
        gc.collect()
        assert [kept for kept in gc.get_objects() if isinstance(kept, Run | RunDriver)] == []
    expected = ["CANCELED" if number % 3 == 0 and number % 2 else "COMPLETED" for number in range(200)]
    assert statuses == expected
    wait_until(lambda: threading.active_count() <= threads)


# --- Waits inside blocks, and what outlives its welcome --------------------------------------------------------------

ASK_TWICE = """
flow:
  graph: 'repeat(count=2) { ask }'
tasks:
  ask: {wait: {key: ask}}
"""
ASK_WITH_DEFAULTS = """
flow:
  graph: '( one & two )'
tasks:
  one: {wait: {deadline_sec: 0.02, default: 5}}
  two: {wait: {deadline_sec: 0.02, default: 6}}
"""


def test_a_wait_inside_a_loop_costs_nothing_while_it_waits(engine: Engine) -> None:
    run_id = engine.start(read_flow_yaml(ASK_TWICE, name="twice"))
    for node_id in (":repeat[0]/ask", ":repeat[1]/ask"):
        wait_until(lambda node_id=node_id: node_id in engine.get(run_id).nodes)  # type: ignore[misc]
        wait_until(lambda node_id=node_id: status_of(engine, run_id, node_id) is NodeStatus.WAITING)  # type: ignore[misc]
        length = len(engine.events(run_id))
        time.sleep(0.05)
        assert len(engine.events(run_id)) == length
        engine.resume(run_id, node_id, node_id)
    assert engine.wait(run_id).status == "COMPLETED"


def test_defaults_of_waits_inside_a_group_are_taken(engine: Engine) -> None:
    result = engine.run(read_flow_yaml(ASK_WITH_DEFAULTS, name="defaults"))
    assert (result.status, dict(result.results)) == ("COMPLETED", {"one": 5, "two": 6})


def test_a_deadline_holds_after_a_takeover() -> None:
    flow, log = Flow() >> wait("answer", deadline_sec=0.3, default=7), MemoryEventLog()
    with Engine(log=log) as first:
        run_id = first.start(flow)
        wait_until(lambda: status_of(first, run_id, "answer") is NodeStatus.WAITING)
    with Engine(log=MemoryEventLog.load(log.dump())) as second:
        assert second.wait(second.take_up(flow, run_id)).results["answer"] == 7


def test_a_coroutine_that_will_not_be_cancelled_does_not_keep_its_run() -> None:
    released = threading.Event()

    async def stubborn() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    with Engine(cancel_grace_sec=0.1) as engine:
        run_id = engine.start(Flow() >> step(stubborn))
        wait_until(lambda: status_of(engine, run_id, "stubborn") is NodeStatus.RUNNING)
        engine.cancel(run_id)
        assert engine.wait(run_id).status == "CANCELED"
        released.set()


def test_a_flow_without_tasks_is_refused(engine: Engine) -> None:
    with pytest.raises(FlowError, match="has no tasks"):
        engine.run(Flow("empty"))


def test_parameters_the_log_cannot_hold_are_refused(engine: Engine) -> None:
    with pytest.raises(DecodeError, match=r"a object is not accepted here.*\$\.params\.n"):
        engine.run(fan_flow(Calls()), {"n": object()})


def test_an_error_after_the_end_of_a_run_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    execute = NodeExecutor.execute

    async def broken(self: NodeExecutor, node_id: str, children: ChildNodes, *, attempt: int) -> None:
        await execute(self, node_id, children, attempt=attempt)
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(NodeExecutor, "execute", broken)
    with Engine() as engine, pytest.raises(ValueError, match="a mistake of ours"):
        engine.run(Flow() >> step(lambda: 1, "one"))

"""Ways in which the engine once misbehaved."""

import asyncio
import threading
import time
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import Engine, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.core import DecodeError, NodeStatus
from pyoco_server.engine import EngineClosedError
from pyoco_server.flows.errors import FlowError
from tests.app.runtime.flows import Calls, approval_flow, fan_flow, wait_until


def step(function: Any, name: str, **fields: Any) -> TaskWrapper:
    return TaskWrapper(Task(func=function, name=name, **fields))


def is_waiting(engine: Engine, run_id: str, node_id: str) -> bool:
    node = engine.get(run_id).nodes.get(node_id)
    return node is not None and node.status is NodeStatus.WAITING


@pytest.fixture
def engine() -> Any:
    with Engine(cancel_grace_sec=0.5) as made:
        yield made


BLOCKS: dict[str, tuple[Any, str]] = {
    "repeat": (lambda: wait("w")[3], ":repeat[0]/w"),
    "foreach": (lambda: wait("w")["$ctx.params.items as item"], ":foreach[0]/w"),
    "switch": (lambda: switch("$ctx.params.n")[1 >> wait("w")], ":switch/w"),
    "nested": (lambda: (wait("w")[2])[2], ":repeat[0]/:repeat[0]/w"),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_run_parked_inside_a_block_can_be_cancelled(engine: Engine, kind: str) -> None:
    make, node_id = BLOCKS[kind]
    run_id = engine.start(Flow(kind) >> make(), {"n": 1, "items": [1, 2]})
    wait_until(lambda: is_waiting(engine, run_id, node_id))
    assert engine.cancel(run_id) is True
    assert engine.wait(run_id).status == "CANCELED"


def test_a_cancel_outlives_the_process_that_was_asked() -> None:
    log = MemoryEventLog()
    stuck = threading.Event()
    first = Engine(log=log, cancel_grace_sec=60)
    run_id = first.start(Flow("k") >> step(stuck.wait, "s"))
    wait_until(lambda: first.get(run_id).nodes["s"].status is NodeStatus.RUNNING)
    first.cancel(run_id)
    with Engine(log=MemoryEventLog.load(log.dump()), cancel_grace_sec=0.5) as second:
        assert second.wait(second.take_up(Flow("k") >> step(lambda: 1, "s"), run_id)).status == "CANCELED"
    stuck.set()
    first.close()


def test_resuming_and_cancelling_at_once_always_ends(engine: Engine) -> None:
    for _ in range(30):
        run_id = engine.start(approval_flow(Calls()))
        wait_until(lambda run_id=run_id: is_waiting(engine, run_id, "approval"))  # type: ignore[misc]
        acts = [lambda run_id=run_id: engine.resume(run_id, "approval"), lambda run_id=run_id: engine.cancel(run_id)]
        threads = [threading.Thread(target=_ignoring_refusals, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.wait(run_id).status in {"CANCELED", "COMPLETED"}


def _ignoring_refusals(act: Any) -> None:
    try:
        act()
    except (KeyError, ValueError, RuntimeError):
        return
    except Exception as error:  # noqa: BLE001 a refusal, whatever its class
        assert type(error).__name__ == "CommandRejected"  # noqa: PT017 in a thread of its own


def test_a_loop_that_resumes_comes_to_the_same_decisions(engine: Engine) -> None:
    numbers = iter(range(1, 100))
    body = step(lambda: next(numbers), "counter") >> wait("ok")
    run_id = engine.start(Flow("u") >> body % ("$ctx.results.counter >= 3", 10))
    for index in range(3):
        node_id = f":until[{index}]/ok"
        wait_until(lambda node_id=node_id: is_waiting(engine, run_id, node_id))  # type: ignore[misc]
        engine.resume(run_id, node_id, index)
    result = engine.wait(run_id)
    assert (result.status, result.results["counter"], result.results["ok"]) == ("COMPLETED", 3, 2)


def test_a_choice_is_made_once(engine: Engine) -> None:
    calls = Calls()
    first = step(lambda: "a", "first", outputs=["scratch.m"])
    second = step(lambda: "b", "second", outputs=["scratch.m"])
    cases = ["a" >> (second >> wait("w")), "b" >> calls.task("bad")]
    run_id = engine.start(Flow("s") >> first >> switch("$ctx.scratch.m")[cases])
    wait_until(lambda: is_waiting(engine, run_id, ":switch/w"))
    engine.resume(run_id, ":switch/w", 1)
    assert (engine.wait(run_id).status, calls.names) == ("COMPLETED", [])


def test_uncollected_results_are_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyoco_server.engine.REMEMBERED_ENDS", 10)
    ids = [engine.start(fan_flow(Calls()), {"n": number}) for number in range(40)]
    assert [engine.wait(run_id).results["total"] for run_id in ids] == [2 * number + 3 for number in range(40)]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_coroutine_cannot_end_the_engine(engine: Engine, kind: type[BaseException]) -> None:
    async def bad() -> None:
        raise kind

    assert engine.run(Flow("bad") >> step(bad, "bad")).status == "FAILED"
    assert engine.run(fan_flow(Calls()), {"n": 1}).status == "COMPLETED"


def test_taking_over_a_run_that_the_engine_drives_changes_nothing(engine: Engine) -> None:
    calls, hold = Calls(), threading.Event()
    flow = Flow("t") >> calls.task("slow", lambda _: hold.wait(5))
    run_id = engine.start(flow)
    wait_until(lambda: calls.count("slow") == 1)
    assert engine.take_up(flow, run_id) == run_id
    hold.set()
    assert (engine.wait(run_id).status, calls.count("slow")) == ("COMPLETED", 1)


def test_a_task_that_cancels_itself_has_failed(engine: Engine) -> None:
    async def odd() -> None:
        inner = asyncio.create_task(asyncio.sleep(9))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    result = engine.run(Flow("odd") >> step(odd, "odd"))
    assert (result.state.nodes["odd"].error or {})["code"] == "CancelledError"


def test_a_tasks_name_is_only_a_name(engine: Engine) -> None:
    assert engine.run(Flow("n") >> step(lambda: 1, "a (stopping)")).status == "COMPLETED"


def test_a_failing_listener_does_not_affect_the_run(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("broken")

    run_id = engine.start(fan_flow(Calls()), {"n": 1}, listener=broken)
    assert engine.wait(run_id).status == "COMPLETED"
    assert {record.__dict__["action"] for record in caplog.records} == {"listener_failed"}


def test_a_listener_that_calls_the_engine_gets_an_error(engine: Engine) -> None:
    errors: list[BaseException] = []

    def nosy(*_: Any) -> None:
        try:
            engine.get("x")
        except EngineClosedError as error:
            errors.append(error)

    engine.wait(engine.start(fan_flow(Calls()), {"n": 1}, listener=nosy))
    assert errors


def test_a_closed_engine_says_so_and_closing_twice_is_fine() -> None:
    engine = Engine()
    closers = [threading.Thread(target=engine.close) for _ in range(4)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(10)
    assert not any(closer.is_alive() for closer in closers)
    with pytest.raises(EngineClosedError, match="closed"):
        engine.run(fan_flow(Calls()), {"n": 1})


def test_closing_the_engine_ends_the_waits_of_callers() -> None:
    engine, ended = Engine(), threading.Event()
    run_id = engine.start(Flow("w") >> wait("never"))

    def waiter() -> None:
        try:
            engine.wait(run_id)
        finally:
            ended.set()

    thread = threading.Thread(target=lambda: _quiet(waiter), daemon=True)
    thread.start()
    time.sleep(0.05)
    engine.close()
    assert ended.wait(10)


def _quiet(act: Any) -> None:
    try:
        act()
    except BaseException:  # noqa: BLE001 any error will do: only that the call ends matters
        return


@pytest.mark.parametrize("report", [(10, 5), ("10", None), (None, object())])
def test_progress_that_is_none_is_the_tasks_error(engine: Engine, report: tuple[Any, Any]) -> None:
    result = engine.run(Flow("p") >> step(lambda ctx: ctx.progress(*report), "p"))
    assert (result.state.nodes["p"].error or {})["code"] == "TypeError"
    assert engine.get(result.run_id).status == "FAILED"


def test_a_resume_value_that_the_log_cannot_hold_is_refused(engine: Engine) -> None:
    run_id = engine.start(approval_flow(Calls()))
    wait_until(lambda: is_waiting(engine, run_id, "approval"))
    with pytest.raises(DecodeError, match=r"a object is not accepted here.*\$\.input"):
        engine.resume(run_id, "approval", object())
    engine.resume(run_id, "approval", (1, 2))
    assert engine.wait(run_id).results["publish"] == (1, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": {"x": object()}},
        {"deadline_sec": 1, "default": object()},
        {"deadline_sec": 1e15},
        {"deadline_sec": -1},
    ],
)
def test_a_wait_the_log_cannot_hold_is_refused_where_it_is_written(fields: dict[str, Any]) -> None:
    with pytest.raises(FlowError):
        wait("w", **fields)


def test_a_task_that_returned_a_set_is_not_called_by_the_next_process() -> None:
    calls, again = Calls(), Calls()

    def flow(counted: Calls) -> Flow:
        return Flow("o") >> counted.task("make", lambda _: {1, 2}) >> wait("w1") >> wait("w2") >> counted.task("end")

    log = MemoryEventLog()
    with Engine(log=log) as first:
        run_id = first.start(flow(calls))
        wait_until(lambda: is_waiting(first, run_id, "w1"))
    with Engine(log=MemoryEventLog.load(log.dump())) as second:
        second.take_up(flow(again), run_id)
        for node_id in ("w1", "w2"):
            wait_until(lambda node_id=node_id: is_waiting(second, run_id, node_id))  # type: ignore[misc]
            second.resume(run_id, node_id)
        assert second.wait(run_id).status == "COMPLETED"
    assert (calls.count("make"), again.count("make")) == (1, 0)

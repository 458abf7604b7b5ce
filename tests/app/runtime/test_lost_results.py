"""Results that cannot be stored: where this is noticed, what is reported, and when the task may be called again."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import Engine, options, wait
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.runtime.plan_cache import PlanCache
from pyoco_server.core import Event, NodeStatus
from pyoco_server.core.payloads import NodeFailReported, NodeStarted, NodeSucceeded
from pyoco_server.engine import RunResult
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.values.errors import ResultLostError
from tests.app.runtime.flows import Calls, wait_until
from tests.app.runtime.leaving import RUN, Left, Make
from tests.invariants import check_log

LOCK = threading.Lock()
"""Cannot be stored."""


def lock(_: Any = None) -> Any:
    return LOCK


def steps_of(events: list[Event], node_id: str) -> list[tuple[str, int | None]]:
    """The attempts of a node, as the log has them."""
    return [
        (event.type.value, payload.attempt)
        for event in events
        if isinstance(payload := event.payload, NodeStarted | NodeSucceeded | NodeFailReported)
        and payload.node_id == node_id
    ]


def finished_elsewhere(make: Make, params: dict[str, Any] | None = None) -> tuple[RunResult, Calls, list[Event]]:
    """Finish a run in another process and check its log; return the result, the calls and the log."""
    left, calls = Left(make, params), Calls()
    with Engine(log=left.log, outputs=left.store) as engine:
        flow = make(calls)
        result = engine.wait(engine.take_up(flow, RUN))
        events = engine.events(RUN)
    check_log(PlanCache().of(read_flow(flow).model).graph, events, result.state)
    return result, calls, events


def error_of(result: RunResult, node_id: str) -> dict[str, Any]:
    return dict(result.state.nodes[node_id].error or {})


# --- Lost ------------------------------------------------------------------------------------------------------------


def test_an_unstorable_result_is_used_by_its_process_and_lost_in_the_log() -> None:
    calls = Calls()
    with Engine() as engine:
        flow = Flow("l") >> calls.task("make", lock) >> calls.task("use", lambda ctx: ctx.results["make"] is LOCK)
        result = engine.run(flow)
    output = result.state.nodes["make"].output or {}
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["make", "use"])
    assert (output["output_kind"], output["repr"]) == ("lost", repr(LOCK))
    assert result.results["make"] is LOCK


READERS: dict[str, Callable[..., Any]] = {
    "context": lambda ctx: ctx.results["make"],
    "get": lambda ctx: ctx.results.get("make"),
    "all": lambda ctx: dict(ctx.results),
    "items": lambda ctx: list(ctx.results.items()),
    "get_result": lambda ctx: ctx.get_result("make"),
}


@pytest.mark.parametrize("kind", [*READERS, "parameter"])
def test_a_task_that_needs_a_lost_result_fails_with_the_reason_and_the_remedy(kind: str) -> None:
    def make(calls: Calls) -> Flow:
        use = by_parameter(calls) if kind == "parameter" else calls.task("use", READERS[kind])
        use.task.retries = 3  # no use: a lost result stays lost
        return Flow("l") >> calls.task("make", lock) >> use

    result, calls, events = finished_elsewhere(make)
    assert (result.status, calls.count("make")) == ("FAILED", 0)
    assert error_of(result, "use") == {
        "code": "RESULT_LOST",
        "message": "the result of task 'make' is lost: it cannot be stored: TypeError: cannot pickle '_thread.lock' "
        "object. Let 'make' return something that can be stored, or declare it repeatable with options(make, "
        "recompute=True) (flow.yaml: recompute: true).",
        "detail": {"task": "make", "nodeId": "make"},
    }
    assert len(steps_of(events, "make")) == 2


def by_parameter(calls: Calls) -> TaskWrapper:
    """A step ``use`` that takes the result by its name, and stays where the first process leaves it."""
    use = calls.task("use")
    called = use.task.func

    def function(ctx: Any, make: Any = None) -> Any:  # noqa: ARG001 that it is asked for is enough
        return called(ctx)

    use.task.func = function
    return use


def test_a_task_that_does_not_need_a_lost_result_succeeds() -> None:
    def use(ctx: Any) -> Any:
        return ["make" in ctx.results, sorted(ctx.results), len(ctx.results), ctx.results["other"]]

    def make(calls: Calls) -> Flow:
        return Flow("l") >> calls.task("make", lock) >> calls.task("other", 5) >> calls.task("use", use)

    result, calls, _ = finished_elsewhere(make)
    assert (result.status, calls.names) == ("COMPLETED", ["use"])
    assert result.results["use"] == [True, ["make", "other"], 2, 5]


def test_results_that_old_logs_have_as_text_only_are_lost() -> None:
    left = Left(lambda calls: Flow("l") >> calls.task("make", lambda _: (1, 2)) >> calls.task("use", READERS["get"]))
    lines = msgspec.msgpack.decode(left.log.dump(), type=dict[str, list[Any]])
    written, before = b'{"value":{"$tuple":[1,2]},"output_kind":"tagged"}', b'{"repr":"(1, 2)"}'
    assert any(written in line for line in lines[RUN])
    lines[RUN] = [line.replace(written, before) for line in lines[RUN]]
    left.log = MemoryEventLog.load(msgspec.msgpack.encode(lines))
    result, calls = left.finish_elsewhere()
    assert (result.status, error_of(result, "use")["code"], calls.names) == ("FAILED", "RESULT_LOST", ["use"])
    assert "the log has only its text, (1, 2)." in error_of(result, "use")["message"]


def test_the_outputs_of_a_task_are_lost_with_its_result() -> None:
    def make(calls: Calls) -> Flow:
        making = calls.task("make", lock)
        making.task.outputs = ["scratch.deep.inside", "scratch.flat"]
        return Flow("l") >> making >> calls.task("use", lambda ctx: [*ctx.scratch["deep"], ctx.scratch["flat"]])

    result, _, _ = finished_elsewhere(make)
    assert error_of(result, "use")["code"] == "RESULT_LOST"


def test_a_decision_on_a_lost_result_fails_the_block() -> None:
    def make(calls: Calls) -> Flow:
        chosen = switch("$ctx.results.make")[1 >> calls.task("one"), "default" >> calls.task("other")]
        return Flow("l") >> calls.task("make", lock) >> calls.task("use") >> chosen

    result, _, _ = finished_elsewhere(make)
    assert (result.status, result.state.failure["error"]["code"]) == ("FAILED", "RESULT_LOST")  # type: ignore[index]


def test_a_decision_that_cannot_be_stored_is_not_made_again() -> None:
    def make(calls: Calls) -> Flow:
        loop = calls.task("use")["$ctx.results.make as item"]
        return Flow("l") >> calls.task("make", lambda _: [LOCK, LOCK]) >> loop

    result, calls, _ = finished_elsewhere(make)
    assert (result.status, calls.names) == ("FAILED", [])
    error = result.state.failure["error"]  # type: ignore[index]
    assert error["code"] == "RESULT_LOST"
    assert "decided about 'over' is lost: it cannot be stored" in error["message"]


def test_a_loop_continues_with_the_items_it_decided_on() -> None:
    def make(calls: Calls) -> Flow:
        making = calls.task("make", lambda _: [(1,), (2,)])
        return Flow("l") >> making >> calls.task("use", lambda ctx: ctx.loop.item)["$ctx.results.make as item"]

    result, calls, _ = finished_elsewhere(make)
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", (2,), ["use", "use"])


def test_a_prompt_that_shows_a_lost_result_fails_the_wait_with_the_reason_and_the_remedy() -> None:
    def make(calls: Calls) -> Flow:
        asked = wait("asked", prompt={"question": "{{ results.make }}?"})
        return Flow("l") >> calls.task("make", lock) >> calls.task("use", 1) >> asked

    result, _, _ = finished_elsewhere(make)
    assert (result.status, error_of(result, "asked")["code"]) == ("FAILED", "RESULT_LOST")
    assert "the result of task 'make' is lost: it cannot be stored" in error_of(result, "asked")["message"]


def test_all_results_together_are_read_back_with_those_that_are_deferred() -> None:
    def make(calls: Calls) -> Flow:
        first = calls.task("first", lambda _: {1: {2}})
        return Flow("l") >> first >> calls.task("make", lock) >> calls.task("use") >> calls.task("all", returned)

    def returned(ctx: Any) -> Any:
        return ctx.results

    left = Left(make)
    with Engine(log=left.log, outputs=left.store) as engine:
        engine.wait(engine.take_up(make(Calls()), RUN))
        dumped = left.log.dump()
    with Engine(log=MemoryEventLog.load(dumped), outputs=left.store) as engine:
        kept = engine.wait(engine.take_up(make(Calls()), RUN)).results["all"]
    assert (kept["first"], "make" in kept) == ({1: {2}}, True)
    with pytest.raises(ResultLostError, match="the result of task 'make' is lost"):
        _ = kept["make"]


# --- Computed again --------------------------------------------------------------------------------------------------


def repeatable(calls: Calls, name: str = "make", then: Callable[..., Any] = lock, **fields: Any) -> TaskWrapper:
    return options(calls.task(name, then), recompute=True, **fields)


ONCE_MORE = [("NODE_STARTED", 1), ("NODE_SUCCEEDED", 1), ("NODE_STARTED", 2), ("NODE_SUCCEEDED", 2)]


def test_a_repeatable_task_is_called_again_as_an_attempt_in_the_log() -> None:
    def make(calls: Calls) -> Flow:
        return Flow("r") >> repeatable(calls) >> calls.task("use", lambda ctx: ctx.results["make"] is LOCK)

    result, calls, events = finished_elsewhere(make)
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["make", "use"])
    assert steps_of(events, "make") == ONCE_MORE
    node = result.state.nodes["make"]
    assert (node.status, node.attempt, (node.output or {})["attempt"]) == (NodeStatus.SUCCEEDED, 2, 2)


def test_a_task_is_not_repeated_if_no_other_needs_its_result() -> None:
    def make(calls: Calls) -> Flow:
        use = calls.task("use")
        called = use.task.func
        use.task.func = lambda: called(None)
        return Flow("r") >> repeatable(calls) >> use

    result, calls, events = finished_elsewhere(make)
    assert (result.status, calls.names) == ("COMPLETED", ["use"])
    assert len(steps_of(events, "make")) == 2


def test_a_task_is_repeated_for_one_that_takes_its_result_by_name_or_as_an_input() -> None:
    def make(calls: Calls) -> Flow:
        use = by_parameter(calls)
        use.task.inputs = {"make": "$node.make.output"}
        return Flow("r") >> repeatable(calls) >> use

    result, calls, events = finished_elsewhere(make)
    assert (result.status, calls.names) == ("COMPLETED", ["make", "use"])
    assert steps_of(events, "make") == ONCE_MORE


def test_a_task_is_repeated_once_for_several_that_need_its_result() -> None:
    def make(calls: Calls) -> Flow:
        users = [calls.task(name, lambda ctx: ctx.results["make"] is LOCK) for name in ("one", "two", "three")]
        return Flow("r") >> repeatable(calls) >> calls.task("use") >> users

    result, calls, events = finished_elsewhere(make)
    assert (result.status, calls.count("make")) == ("COMPLETED", 1)
    assert [result.results[name] for name in ("one", "two", "three")] == [True] * 3
    assert steps_of(events, "make") == ONCE_MORE


def test_lost_inputs_of_a_lost_result_are_computed_first() -> None:
    def make(calls: Calls) -> Flow:
        first = repeatable(calls, "first")
        second = repeatable(calls, "make", lambda ctx: [ctx.results["first"]])
        return Flow("r") >> first >> second >> calls.task("use", lambda ctx: ctx.results["make"][0] is LOCK)

    result, calls, events = finished_elsewhere(make)
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["first", "make", "use"])
    assert steps_of(events, "first") == ONCE_MORE


def test_a_lost_input_that_may_not_be_computed_again_is_named() -> None:
    def make(calls: Calls) -> Flow:
        second = repeatable(calls, "make", lambda ctx: [ctx.results["first"]])
        return Flow("r") >> calls.task("first", lock) >> second >> calls.task("use", lambda ctx: ctx.results["make"])

    result, calls, _ = finished_elsewhere(make)
    assert (result.status, calls.count("first")) == ("FAILED", 0)
    assert "the result of task 'make' is lost: computing it again failed: the result of task 'first' is lost" in str(
        error_of(result, "use")["message"]
    )


def test_a_repeated_task_is_tried_as_often_as_its_retries_allow() -> None:
    def failing_twice(calls: Calls) -> Callable[..., Any]:
        def then(_: Any) -> Any:
            if calls.count("use") == 0 and calls.has_left and calls.count("make") < 3:  # type: ignore[attr-defined]
                raise ValueError("not yet")
            return LOCK

        return then

    def make(calls: Calls) -> Flow:
        calls.has_left = not hasattr(calls, "over")  # type: ignore[attr-defined]  # the first process has one
        making = repeatable(calls, "make", failing_twice(calls), retries=2, backoff=0.001)
        return Flow("r") >> making >> calls.task("use", lambda ctx: ctx.results["make"] is LOCK)

    result, calls, events = finished_elsewhere(make)
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["make"] * 3 + ["use"])
    assert steps_of(events, "make")[2:] == [
        ("NODE_STARTED", 2),
        ("NODE_FAIL_REPORTED", 2),
        ("NODE_STARTED", 3),
        ("NODE_FAIL_REPORTED", 3),
        ("NODE_STARTED", 4),
        ("NODE_SUCCEEDED", 4),
    ]


def test_a_repeated_task_that_fails_fails_the_task_that_needs_it_with_its_error() -> None:
    def make(calls: Calls) -> Flow:
        def then(_: Any) -> Any:
            if hasattr(calls, "over"):
                return LOCK
            raise ValueError("no longer")

        return Flow("r") >> repeatable(calls, "make", then) >> calls.task("use", lambda ctx: ctx.results["make"])

    result, calls, events = finished_elsewhere(make)
    assert (result.status, calls.names) == ("FAILED", ["make", "use"])
    assert (
        "the result of task 'make' is lost: computing it again failed: no longer." in error_of(result, "use")["message"]
    )
    assert steps_of(events, "make")[2:] == [("NODE_STARTED", 2), ("NODE_FAIL_REPORTED", 2)]
    assert result.state.nodes["make"].status is NodeStatus.SUCCEEDED


LOOPS: dict[str, tuple[Callable[[TaskWrapper], Any], int]] = {
    "repeat": (lambda make: make[3], 2),
    "switch": (lambda make: switch("$ctx.params.n")[1 >> make], 0),
    "for_each": (lambda make: make["$ctx.params.items as item"], 2),
    "nested": (lambda make: (make[2])[2], 1),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_lost_results_of_a_finished_block_are_computed_in_their_place(kind: str) -> None:
    block, last = LOOPS[kind]

    def index(ctx: Any) -> Any:
        return [ctx.loop.index if ctx.loop else 0, LOCK]

    def make(calls: Calls) -> Flow:
        return (
            Flow(kind)
            >> block(repeatable(calls, "make", index))
            >> calls.task("use", lambda ctx: ctx.results["make"][0])
        )

    result, calls, _ = finished_elsewhere(make, {"n": 1, "items": [7, 8, 9]})
    assert (result.status, result.results["use"]) == ("COMPLETED", last)
    assert calls.names[-1] == "use"


def test_a_task_is_repeated_for_an_expression_that_needs_its_result() -> None:
    def make(calls: Calls) -> Flow:
        making = repeatable(calls, "make", lambda _: {"n": 1, "lock": LOCK})
        chosen = switch("$ctx.results.make.n")[1 >> calls.task("one"), "default" >> calls.task("other")]
        use = calls.task("use")
        called = use.task.func
        use.task.func = lambda: called(None)
        return Flow("r") >> making >> use >> chosen

    result, calls, events = finished_elsewhere(make)
    assert (result.status, calls.names) == ("COMPLETED", ["use", "make", "one"])
    assert steps_of(events, "make") == ONCE_MORE


def test_a_later_result_of_the_same_name_stays() -> None:
    def make(calls: Calls) -> Flow:
        early, late = repeatable(calls, "early"), calls.task("late", "late")
        early.task.outputs, late.task.outputs = ["scratch.shared"], ["scratch.shared"]
        return Flow("s") >> early >> late >> calls.task("use", lambda ctx: ctx.scratch["shared"])

    result, calls, _ = finished_elsewhere(make)
    assert (result.results["use"], calls.names) == ("late", ["early", "use"])


def test_a_cancel_stops_a_repeated_computation() -> None:
    stuck, begun = threading.Event(), threading.Event()

    def slow(_: Any) -> None:
        begun.set()
        stuck.wait(20)

    def flow(then: Any) -> Make:
        return lambda calls: Flow("c") >> repeatable(calls, "make", then) >> calls.task("use")

    left = Left(flow(lock))
    with Engine(log=left.log, outputs=left.store, cancel_grace_sec=0.2) as engine:
        engine.take_up(flow(slow)(Calls()), RUN)
        assert begun.wait(60)
        assert engine.cancel(RUN)
        assert engine.wait(RUN).status == "CANCELED"
        assert not stuck.is_set()
        stuck.set()


def test_a_cancel_ends_the_pause_before_a_retry_of_a_repeated_task() -> None:
    calls = Calls()

    def failing(_: Any) -> None:
        raise ValueError("not yet")

    def flow(counted: Calls, then: Any) -> Flow:
        return Flow("c") >> repeatable(counted, "make", then, retries=1, backoff=60) >> counted.task("use")

    left = Left(lambda counted: flow(counted, lock))
    with Engine(log=left.log, outputs=left.store, cancel_grace_sec=60) as engine:
        engine.take_up(flow(calls, failing), RUN)
        wait_until(lambda: ("NODE_FAIL_REPORTED", 2) in steps_of(engine.events(RUN), "make"))
        assert engine.cancel(RUN)
        wait_until(lambda: engine.get(RUN).status == "CANCELED")
        assert len(steps_of(engine.events(RUN), "make")) == 4
    assert calls.names == ["make"]


def test_no_task_is_repeated_for_a_run_that_is_being_cancelled() -> None:
    go, calls = threading.Event(), Calls()

    def flow(counted: Calls) -> Flow:
        return Flow("c") >> repeatable(counted) >> counted.task("stuck", lambda _: go.wait(20))

    log = MemoryEventLog()
    first = Engine(log=log, cancel_grace_sec=60)
    first.start(flow(Calls()), run_id="run")
    wait_until(lambda: "stuck" in first.get("run").nodes and first.get("run").nodes["stuck"].attempt == 1)
    first.cancel("run")
    with Engine(log=MemoryEventLog.load(log.dump()), cancel_grace_sec=0.2) as second:
        assert second.wait(second.take_up(flow(calls), "run")).status == "CANCELED"
    go.set()
    first.close()
    assert calls.names == []


def test_a_wait_in_between_does_not_lose_a_result_in_memory() -> None:
    calls = Calls()
    with Engine(outputs=MemoryOutputStore()) as engine:
        run_id = engine.start(
            Flow("w")
            >> calls.task("make", lock)
            >> wait("ok")
            >> calls.task("use", lambda ctx: ctx.results["make"] is LOCK)
        )
        wait_until(lambda: (node := engine.get(run_id).nodes.get("ok")) is not None and node.status == "WAITING")
        engine.resume(run_id, "ok", (1, 2))
        result = engine.wait(run_id)
    assert (result.status, result.results["use"], result.results["ok"]) == ("COMPLETED", True, (1, 2))
    assert calls.names == ["make", "use"]

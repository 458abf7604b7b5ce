"""Where the two engines are meant to differ: one test for each row of ``docs/pyoco-differences.md``."""

import contextlib
import decimal
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.core.json_codec import DecodeError
from pyoco_server.flows.errors import FlowError
from tests.app.runtime.pyoco_side import (
    DEADLOCK,
    SKIPPED,
    Built,
    failing,
    network,
    returning,
    run_on_both,
    run_on_ours,
    run_on_pyoco,
    step,
    without_deadlock,
)


def test_a_failed_run_is_a_result_and_not_an_exception(engine: Engine) -> None:
    ended = engine.run(Flow() >> failing("a"))
    assert ended.status == "FAILED"
    failure = ended.state.failure or {}
    assert failure["failedNodeId"] == "a"
    assert (failure["error"]["code"], failure["error"]["message"]) == ("ValueError", "a broke")
    assert "a broke" in failure["error"]["detail"]["traceback"]


def test_tasks_behind_an_isolated_failure_are_canceled_and_name_it(engine: Engine) -> None:
    ended = engine.run(Flow() >> failing("a", fail_policy="isolate") >> returning("b"))
    assert ended.status == "COMPLETED"
    skipped = ended.state.nodes["b"]
    assert skipped.status == "CANCELED"
    assert skipped.skip is not None
    assert skipped.skip.by == "a"


def test_tasks_further_behind_an_isolated_failure_are_no_deadlock(engine: Engine) -> None:
    def build() -> Built:
        chain = Flow() >> failing("a", fail_policy="isolate") >> returning("b") >> returning("c") >> returning("d")
        chain.add_task(returning("beside", 1).task)
        return Built(chain)

    pyoco, _, ours, _ = run_on_both(engine, build)
    assert (pyoco.status, pyoco.error) == ("FAILED", ("RuntimeError", DEADLOCK))
    assert (ours.status, ours.error) == ("COMPLETED", None)
    assert pyoco.tasks == {"a": "FAILED", "b": SKIPPED, "c": "PENDING", "d": "PENDING", "beside": "SUCCEEDED"}
    assert ours.tasks == {"a": "FAILED", "b": SKIPPED, "c": SKIPPED, "d": SKIPPED, "beside": "SUCCEEDED"}


def test_tasks_further_behind_that_isolate_do_not_depend_on_the_order_of_a_set(engine: Engine) -> None:
    """With pyoco it depends on the order in which it happens to look at them whether this is a deadlock."""

    def build() -> Built:
        behind = [returning(name, fail_policy="isolate") for name in "bc"]
        return Built(Flow() >> failing("a", fail_policy="isolate") >> behind[0] >> behind[1])

    pyoco, _, ours, _ = run_on_both(engine, build)
    assert ours == without_deadlock(pyoco)
    assert (ours.status, ours.tasks) == ("COMPLETED", {"a": "FAILED", "b": SKIPPED, "c": SKIPPED})


def test_dependencies_on_tasks_outside_the_flow_are_ignored(engine: Engine) -> None:
    def build() -> Built:
        shared = returning("s", 1)
        _ = Flow(name="other") >> returning("elsewhere") >> shared
        return Built(Flow() >> returning("a", 0) >> shared)

    pyoco, _, ours, _ = run_on_both(engine, build)
    assert pyoco.error == ("RuntimeError", DEADLOCK)
    assert ours.status == "COMPLETED"
    assert ours.results == {"a": 0, "s": 1}


def test_a_cycle_is_refused_before_anything_runs(engine: Engine) -> None:
    def build() -> Built:
        built = Built(Flow())
        a, b = step(lambda: built.notes.append("a"), "a"), returning("b")
        before = step(lambda: built.notes.append("before"), "before")
        built.flow = built.flow >> before >> a >> b >> a
        return built

    theirs, ours = build(), build()
    assert run_on_pyoco(theirs).error == ("RuntimeError", DEADLOCK)
    assert theirs.notes == ["before"]
    with pytest.raises(FlowError, match="cycle"):
        engine.run(ours.flow)
    assert ours.notes == []


def test_a_flow_without_tasks_is_refused(engine: Engine) -> None:
    assert run_on_pyoco(Built(Flow())).status == "COMPLETED"
    with pytest.raises(FlowError, match="no tasks"):
        engine.run(Flow())


@pytest.mark.parametrize("value", [{1}, b"x", float("inf"), decimal.Decimal(1), {1: 2}, (1, 2)], ids=repr)
def test_parameters_keep_their_type(engine: Engine, value: object) -> None:
    flow = Flow() >> step(lambda x: [x], "a")
    theirs, ours = run_on_pyoco(Built(flow, {"x": value})).results["a"], engine.run(flow, {"x": value}).results["a"]
    assert ours == theirs == [value]
    assert type(ours[0]) is type(value)


@pytest.mark.parametrize("value", [object(), threading.Lock(), re.compile("x")], ids=lambda value: type(value).__name__)
def test_parameters_must_be_of_built_in_types(engine: Engine, value: object) -> None:
    def build() -> Built:
        built = Built(Flow(), {"x": value})
        built.flow >>= step(lambda x: built.notes.extend([x]), "a")
        return built

    theirs, ours = build(), build()
    assert run_on_pyoco(theirs).status == "COMPLETED"
    assert theirs.notes == [value]
    with pytest.raises(DecodeError):
        engine.run(ours.flow, ours.params)
    assert ours.notes == []


def test_an_isolated_failure_in_a_loop_ends_only_its_round(engine: Engine) -> None:
    def build() -> Built:
        return Built(Flow() >> failing("a", fail_policy="isolate")[2] >> returning("b", 1))

    assert run_on_pyoco(build()).results == {}
    ours = run_on_ours(engine, build())
    assert (ours.error, ours.results) == (None, {"b": 1})


def test_a_stop_interrupts_those_still_running(engine: Engine) -> None:
    """pyoco waits for them, however long they take."""

    def build(release_sec: float) -> Built:
        built = Built(Flow())
        begun, stop = threading.Event(), threading.Event()

        def slow(ctx: Any) -> str:
            begun.set()
            for _ in range(round(release_sec / 0.01)):
                if ctx.is_cancelled:
                    built.notes.append("asked to stop")
                    stop.set()
                    return "stopped"
                stop.wait(0.01)
            return "went on to the end"

        def fail() -> None:
            begun.wait(10)
            raise ValueError("stop")

        built.flow = network(step(slow), step(fail))
        return built

    pyoco = run_on_pyoco(build(0.1))
    assert pyoco.tasks == {"slow": "SUCCEEDED", "fail": "FAILED"}
    assert pyoco.results == {"slow": "went on to the end"}
    ours = run_on_ours(engine, build(30))
    assert ours.error == pyoco.error == ("ValueError", "stop")
    assert ours.tasks == {"slow": "CANCELED", "fail": "FAILED"}
    assert ours.results == {}


def test_a_timeout_ends_the_wait_at_once(engine: Engine) -> None:
    """pyoco reports the timeout, then waits for the function all the same, and keeps its result."""

    def build(end: threading.Event, wait_sec: float, **options: Any) -> Built:
        slow = step(lambda: end.wait(wait_sec), "slow", timeout_sec=0.05, **options)
        return Built(network(slow, returning("beside", 1)))

    end = threading.Event()
    pyoco = run_on_pyoco(build(end, 0.2, fail_policy="isolate"))
    assert pyoco.results == {"slow": False, "beside": 1}
    try:
        ours = run_on_ours(engine, build(end, 60, fail_policy="isolate"))
        assert (ours.status, ours.tasks["slow"]) == ("COMPLETED", "FAILED")
        assert ours.results == {"beside": 1}
        ours = run_on_ours(engine, build(end, 60))
        assert (ours.status, ours.tasks["slow"]) == ("FAILED", "FAILED")
        assert ours.error == ("TIMEOUT", "task 'slow' exceeded its timeout of 0.05 s")
    finally:
        end.set()


def test_a_timeout_is_for_one_attempt_and_may_be_retried(engine: Engine) -> None:
    """pyoco's is for all attempts together, and ends them."""
    end = threading.Event()

    def build(timeout_sec: float, wait_sec: float) -> Built:
        calls: list[int] = []

        def slow_at_first() -> int:
            calls.append(1)
            if len(calls) == 1:
                end.wait(wait_sec)
            return len(calls)

        return Built(Flow() >> step(slow_at_first, timeout_sec=timeout_sec, retries=1))

    assert run_on_pyoco(build(0.05, 0.2)).status == "FAILED"
    try:
        ours = run_on_ours(engine, build(0.5, 60))
    finally:
        end.set()
    assert (ours.status, ours.results) == ("COMPLETED", {"slow_at_first": 2})


def test_a_timeout_holds_in_a_program_too(engine: Engine) -> None:
    end = threading.Event()

    def build(wait_sec: float) -> Built:
        return Built(Flow() >> step(lambda: end.wait(wait_sec), "slow", timeout_sec=0.05)[1] >> returning("b", 2))

    assert run_on_pyoco(build(0.1)).status == "COMPLETED"
    try:
        ours = run_on_ours(engine, build(60))
    finally:
        end.set()
    assert (ours.status, ours.tasks) == ("FAILED", {"slow": "FAILED", "b": "PENDING"})
    assert ours.error == ("TIMEOUT", "task 'slow' exceeded its timeout of 0.05 s")


def test_a_coroutine_function_is_awaited(engine: Engine) -> None:
    """pyoco takes the coroutine itself for the result."""

    async def late() -> int:
        return 7

    theirs = run_on_pyoco(Built(Flow() >> step(late)))
    coroutine = theirs.results["late"]
    assert type(coroutine).__name__ == "coroutine"
    coroutine.close()
    assert run_on_ours(engine, Built(Flow() >> step(late))).results == {"late": 7}


def test_the_name_of_an_outer_loop_comes_back_after_an_inner_one_of_the_same_name(engine: Engine) -> None:
    def build() -> Built:
        built = Built(Flow(), {"xs": [1, 2], "ys": ["a"]})
        inner = step(lambda ctx: built.notes.append(ctx.get_var("i")), "inner")
        outer = step(lambda ctx: built.notes.append(ctx.get_var("i")), "outer")
        built.flow >>= (inner["$ctx.params.ys as i"] >> outer)["$ctx.params.xs as i"]
        return built

    _, pyoco_notes, _, our_notes = run_on_both(engine, build)
    assert pyoco_notes == ["a", None, "a", None]
    assert our_notes == ["a", 1, "a", 2]


CHANGES = {"a new parameter": "params.new", "inside a parameter": "params.n.new"}


@pytest.mark.parametrize("change", CHANGES)
def test_the_callers_parameters_are_left_alone(engine: Engine, change: str) -> None:
    def build() -> Built:
        return Built(Flow() >> returning("a", 1, outputs=[CHANGES[change]]), {"n": {"old": 0}})

    theirs, ours = build(), build()
    run_on_pyoco(theirs)
    ended = engine.run(ours.flow, ours.params)
    assert theirs.params != {"n": {"old": 0}}
    assert ours.params == {"n": {"old": 0}}
    assert ended.state.input == engine.get(ended.run_id).input == {"params": {"n": {"old": 0}}}


def test_more_than_eight_tasks_run_at_once(engine: Engine) -> None:
    def build(wait_sec: float) -> Built:
        meeting = threading.Barrier(9)
        tasks = [step(lambda: meeting.wait(wait_sec) >= 0, f"t{number}") for number in range(9)]
        return Built(network(*tasks))

    assert run_on_pyoco(build(0.2)).error == ("BrokenBarrierError", "")
    assert run_on_ours(engine, build(20)).status == "COMPLETED"


class Halt(BaseException):
    """No Exception, and not one Python knows."""


class SpeechlessError(Exception):
    """Raises when it is converted to text."""

    @override
    def __str__(self) -> str:
        raise ValueError("no text")


RAISED: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit, Halt, SpeechlessError]


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_a_task_raises_fails_the_run_and_nothing_else(engine: Engine, kind: type[BaseException]) -> None:
    """pyoco lets what is no Exception through to its caller, and its run stays unfinished."""
    ours = run_on_ours(engine, Built(Flow() >> failing("a", kind("why")) >> returning("b")))
    assert (ours.status, ours.tasks) == ("FAILED", {"a": "FAILED", "b": "PENDING"})
    assert engine.run(Flow() >> returning("still", "here")).results == {"still": "here"}


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_what_would_steer_the_event_loop_becomes_an_error(engine: Engine, kind: type[BaseException]) -> None:
    def build() -> Built:
        return Built(Flow() >> failing("a", kind("why")))

    if issubclass(kind, Exception):
        assert run_on_pyoco(build()).error == (kind.__name__, "why")
    else:
        with pytest.raises(kind):
            run_on_pyoco(build())
    error = run_on_ours(engine, build()).error
    assert error is not None
    assert error[0] == "ControlFlowError"
    assert kind.__name__ in error[1]


def test_artifacts_have_a_directory_for_each_run_made_when_needed(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), Engine(artifacts=tmp_path / "ours") as engine:
        run_on_pyoco(Built(Flow() >> returning("a")))
        assert [entry.name for entry in tmp_path.iterdir()] == ["artifacts"]
        engine.run(Flow() >> returning("a"))
        assert not (tmp_path / "ours").exists()
        save = step(lambda ctx: ctx.save_artifact("deep/x.txt", "text"), "save")
        ended = engine.run(Flow() >> save)
        saved = Path(ended.results["save"])
        assert saved.read_text(encoding="utf-8") == "text"
        assert saved == tmp_path / "ours" / ended.run_id / "deep" / "x.txt"


def test_text_that_is_not_unicode_is_spelt_out(engine: Engine) -> None:
    ended = engine.run(Flow() >> failing("a", ValueError("\ud800")))
    assert (ended.state.nodes["a"].error or {})["message"] == "\\ud800"

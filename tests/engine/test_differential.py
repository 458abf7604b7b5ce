"""The same flow on pyoco's engine and on ours: same end, same results, same states of tasks, same error.

Where the two are meant to differ, see ``docs/pyoco-differences.md`` and ``test_pyoco_differences.py``.
"""

import concurrent.futures
import copy
import dataclasses
import decimal
import threading
import time
from typing import Any

import pytest
from pyoco.core.models import Flow, Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.expressions import Expression  # type: ignore[import-untyped]
from pyoco.dsl.nodes import ForEachNode, RepeatNode, SubFlowNode, TaskNode  # type: ignore[import-untyped]
from pyoco.dsl.syntax import FlowFragment, TaskWrapper, switch  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import Engine
from tests.engine.pyoco_side import (
    Build,
    Built,
    after,
    agree,
    attributes,
    failing,
    network,
    returning,
    run_on_both,
    run_on_ours,
    step,
)

CASES: dict[str, Build] = {}
THING = object()


def case(build: Build) -> Build:
    CASES[build.__name__] = build
    return build


def add(name: str, **options: Any) -> TaskWrapper:
    """A task that adds one to whatever its input ``x`` is."""
    return step(lambda x: x + 1, name, **options)


def peek(name: str = "peek") -> TaskWrapper:
    """A task that returns what the run's scratch and parameters are by now."""
    return step(lambda ctx: copy.deepcopy({"scratch": ctx.scratch, "params": ctx.params}), name)


def flaky(name: str, failures: int, **options: Any) -> TaskWrapper:
    """A task that fails so many times, then returns how often it was called."""
    calls: list[int] = []

    def call() -> int:
        calls.append(1)
        if len(calls) <= failures:
            raise ConnectionError(f"call {len(calls)}")
        return len(calls)

    return step(call, name, **options)


def counter(name: str, **options: Any) -> TaskWrapper:
    """A task that returns how often it was called."""
    return flaky(name, 0, **options)


def noting(built: Built, name: str, **options: Any) -> TaskWrapper:
    """A task that notes the loops it stands in."""

    def note(ctx: Any) -> int:
        frames = [(f.type, f.index, f.iteration, f.count, f.item, f.condition, f.path) for f in ctx.loops]
        built.notes.append((name, frames))
        return len(frames)

    return step(note, name, **options)


# --- Networks: shapes ------------------------------------------------------------------------------------------------


@case
def single_task() -> Built:
    return Built(Flow() >> returning("a", 1))


@case
def chain() -> Built:
    return Built(
        Flow()
        >> returning("a", 1)
        >> add("b", inputs={"x": "$node.a.output"})
        >> add("c", inputs={"x": "$node.b.output"})
    )


@case
def chain_built_before_the_flow() -> Built:
    return Built(Flow() >> (returning("a", 1) >> returning("b", 2) >> returning("c", 3)))


@case
def unconnected_tasks() -> Built:
    return Built(network(returning("a", 1), returning("b", 2), returning("c", 3)))


@case
def list_fans_out() -> Built:
    return Built(Flow() >> returning("a", 1) >> [returning("b", 2), returning("c", 3)])


@case
def tuple_fans_out() -> Built:
    return Built(Flow() >> returning("a", 1) >> (returning("b", 2), returning("c", 3)))


@case
def diamond() -> Built:
    join = step(lambda b, c: b + c, "d")
    return Built(Flow() >> returning("a", 1) >> [returning("b", 2), returning("c", 3)] >> join)


@case
def two_diamonds_in_a_row() -> Built:
    return Built(
        Flow()
        >> returning("a", 1)
        >> [returning("b", 2), returning("c", 3)]
        >> step(lambda b, c: b * c, "d")
        >> [add("e", inputs={"x": "$node.d.output"}), add("f", inputs={"x": "$node.d.output"})]
        >> step(lambda e, f: [e, f], "g")
    )


@case
def every_task_of_a_list_waits_for_every_task_of_the_list_before() -> Built:
    second = [step(lambda a, b: a + b, "c"), step(lambda a, b: a - b, "d")]
    return Built(Flow() >> [returning("a", 5), returning("b", 3)] >> second)


@case
def wide_fan_out_and_in() -> Built:
    middle = [returning(f"m{number}", number) for number in range(12)]
    last = step(lambda ctx: sum(ctx.results[f"m{number}"] for number in range(12)), "z")
    return Built(Flow() >> returning("a") >> middle >> last)


@case
def list_at_the_beginning() -> Built:
    return Built(Flow() >> [returning("a", 1), returning("b", 2)] >> step(lambda a, b: (a, b), "c"))


@case
def and_of_two_tasks() -> Built:
    a, b, c = returning("a", 1), returning("b", 2), step(lambda a, b: a + b, "c")
    _ = (a & b) >> c
    return Built(network(a, b, c))


@case
def and_in_a_flow() -> Built:
    a, b = returning("a", 1), returning("b", 2)
    return Built(Flow() >> (a & b) >> step(lambda a, b: a + b, "c"))


@case
def and_before_a_list() -> Built:
    a, b, c, d = (returning(name, name) for name in "abcd")
    _ = (a & b) >> [c, d]
    return Built(network(a, b, c, d))


@case
def or_of_two_tasks() -> Built:
    a, b, c = returning("a", 1), returning("b", 2), returning("c", 3)
    _ = (a | b) >> c
    return Built(network(a, b, c))


@case
def or_in_a_flow_waits_for_both() -> Built:
    a, b = returning("a", 1), returning("b", 2)
    return Built(Flow() >> (a | b) >> step(lambda a, b: a + b, "c"))


@case
def bare_task_objects() -> Built:
    return Built(Flow() >> Task(func=lambda: 1, name="a") >> [Task(func=lambda: 2, name="b")])


@case
def uneven_paths_to_a_join() -> Built:
    a, b, c, d = (returning(name, name) for name in "abcd")
    after(b, a), after(c, b), after(d, c, a)
    return Built(network(a, b, c, d))


@case
def odd_task_names() -> Built:
    return Built(Flow() >> returning("ns:a", 1) >> returning("b/c", 2) >> returning("d e", 3) >> returning("é", 4))


@case
def flow_without_a_name() -> Built:
    return Built(Flow(name="") >> returning("a", 1))


# --- Networks: what goes in ------------------------------------------------------------------------------------------


@case
def input_from_a_result() -> Built:
    return Built(Flow() >> returning("a", {"k": [1]}) >> step(lambda x: x, "b", inputs={"x": "$node.a.output"}))


@case
def input_from_a_field_of_a_result() -> Built:
    source = returning("a", {"k": {"deep": 7}})
    return Built(Flow() >> source >> step(lambda x: x, "b", inputs={"x": "$node.a.output.k.deep"}))


@case
def input_from_an_attribute_of_a_result() -> Built:
    source = returning("a", decimal.Decimal("2.5"))
    return Built(Flow() >> source >> step(lambda x: x, "b", inputs={"x": "$node.a.output.real"}))


@case
def input_from_a_parameter() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$ctx.params.y"}), {"y": 4})


@case
def input_from_the_environment() -> Built:
    return Built(Flow() >> step(lambda x: x, "a", inputs={"x": "$env.PATH"}))


@case
def literal_inputs() -> Built:
    inputs = {"x": 1, "y": "text", "z": ["$node.q.output"], "w": None}
    return Built(Flow() >> step(lambda x, y, z, w: [x, y, z, w], "a", inputs=inputs))


@case
def result_that_is_missing() -> Built:
    return Built(Flow() >> step(lambda x: x, "a", inputs={"x": "$node.nobody.output"}))


@case
def field_that_is_missing() -> Built:
    source = returning("a", {"k": 1})
    return Built(Flow() >> source >> step(lambda x: x, "b", inputs={"x": "$node.a.output.other"}))


@case
def attribute_that_is_missing() -> Built:
    return Built(Flow() >> returning("a", [1]) >> step(lambda x: x, "b", inputs={"x": "$node.a.output.other"}))


@case
def parameter_that_is_missing() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$ctx.params.y"}), {"z": 1})


@case
def environment_variable_that_is_missing() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$env.NO_SUCH_VARIABLE_AT_ALL"}))


@case
def selector_nobody_knows() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$what.is.this"}))


@case
def selector_of_a_context_that_is_not_parameters() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$ctx.scratch.y"}))


@case
def selector_without_output() -> Built:
    return Built(Flow() >> returning("a", 1) >> add("b", inputs={"x": "$node.a"}))


@case
def parameters_by_name() -> Built:
    return Built(Flow() >> step(lambda x, y: [x, y], "a"), {"x": 1, "y": {"n": [None, True]}})


@case
def results_by_name() -> Built:
    return Built(Flow() >> returning("left", 1) >> returning("right", 2) >> step(lambda left, right: left - right, "c"))


@case
def parameter_before_a_result_of_the_same_name() -> Built:
    return Built(Flow() >> returning("a", "result") >> step(lambda a: a, "b"), {"a": "parameter"})


@case
def input_before_a_parameter_of_the_same_name() -> Built:
    return Built(Flow() >> step(lambda x: x, "a", inputs={"x": "input"}), {"x": "parameter"})


@case
def default_of_an_argument_nobody_gives() -> Built:
    return Built(Flow() >> step(lambda x=3: x, "a"))


@case
def argument_nobody_gives() -> Built:
    return Built(Flow() >> step(lambda missing: missing, "a"))


@case
def input_the_function_does_not_take() -> Built:
    return Built(Flow() >> step(lambda: 1, "a", inputs={"x": 1}))


@case
def keyword_arguments_of_any_name() -> Built:
    return Built(Flow() >> step(lambda **given: sorted(given), "a", inputs={"x": 1, "y": 2}), {"z": 3})


@case
def positional_only_argument() -> Built:
    return Built(Flow() >> step(lambda x, /: x, "a"), {"x": 1})


@case
def context_in_a_network() -> Built:
    def look(ctx: Any) -> Any:
        return [sorted(ctx.params), sorted(ctx.results), ctx.get_result("a"), ctx.is_cancelled, ctx.loop]

    return Built(Flow() >> returning("a", 1) >> step(look), {"p": 1})


@case
def context_is_shared() -> Built:
    def leave(ctx: Any) -> None:
        ctx.scratch["left"] = [1, 2]
        ctx.set_result("extra", "by hand")
        ctx.params["more"] = 3

    return Built(Flow() >> step(leave) >> peek() >> step(lambda extra, more: [extra, more], "c"))


@case
def run_context_names_the_flow() -> Built:
    look = step(lambda ctx: [ctx.run_context.flow_name, ctx.run_context.status.value], "a")
    return Built(Flow(name="named") >> look)


@case
def run_context_knows_the_states_of_tasks() -> Built:
    return Built(Flow() >> returning("a", 1) >> step(lambda ctx: ctx.run_context.tasks["a"].value, "b"))


@case
def environment_set_by_a_task() -> Built:
    def give(ctx: Any) -> None:
        ctx.env["COLOUR"] = "green"

    return Built(Flow() >> step(give) >> step(lambda x: x, "b", inputs={"x": "$env.COLOUR"}))


@case
def artifact_saved() -> Built:
    save = step(lambda ctx: len(ctx.save_artifact("deep/a.txt", "text")) > 0, "a")
    return Built(Flow() >> save >> step(lambda ctx: [*ctx.artifacts], "b"))


@case
def callable_object() -> Built:
    @dataclasses.dataclass(frozen=True)
    class Adder:
        n: int

        def __call__(self, x: int) -> int:
            return x + self.n

    return Built(Flow() >> step(Adder(3), "a"), {"x": 1})


@case
def callable_object_that_cannot_be_hashed() -> Built:
    @dataclasses.dataclass
    class Adder:
        n: int

        def __call__(self, x: int) -> int:
            return x + self.n

    return Built(Flow() >> step(Adder(3), "a"), {"x": 1})


@case
def no_parameters_for_an_empty_dictionary() -> Built:
    return Built(Flow() >> step(lambda ctx: dict(ctx.params), "a"), {})


# --- Networks: what comes out ----------------------------------------------------------------------------------------


@case
def results_of_many_kinds() -> Built:
    values = [None, True, 0, -1.5, "", "text", [], [1, [2]], {}, {"k": {"l": None}}, 2**100, float("inf")]
    return Built(network(*(returning(f"t{number}", value) for number, value in enumerate(values))))


@case
def results_that_are_not_json() -> Built:
    values = [(1, 2), {1, 2}, b"bytes", {1: 2}, decimal.Decimal("1.5"), ValueError, range(3), 1j, "\ud800"]
    return Built(network(*(returning(f"t{number}", value) for number, value in enumerate(values))))


@case
def object_passed_on_as_it_is() -> Built:
    return Built(Flow() >> returning("a", THING) >> step(lambda a: a is THING, "b"))


@case
def result_that_cannot_be_shown() -> Built:
    class Shy:
        @override
        def __repr__(self) -> str:
            raise ValueError("not me")

    return Built(Flow() >> step(Shy, "a") >> step(lambda a, ctx: ctx.results.pop("a") is a, "b"))


@case
def result_changed_by_a_later_task() -> Built:
    return Built(Flow() >> step(lambda: [1], "a") >> step(lambda a: a.append(2), "b") >> step(lambda a: [*a], "c"))


@case
def outputs_to_scratch_results_and_parameters() -> Built:
    source = returning("a", 1, outputs=["scratch.x", "results.y", "params.z"])
    return Built(Flow() >> source >> peek() >> step(lambda y, z: [y, z], "c"), {"p": 0})


@case
def outputs_to_nested_places() -> Built:
    source = returning("a", [1], outputs=["scratch.x.y.z", "results.r.s", "params.p.q"])
    return Built(Flow() >> source >> peek(), {"p": {"old": 1}})


@case
def outputs_of_two_tasks_in_one_place() -> Built:
    return Built(
        Flow() >> returning("a", 1, outputs=["scratch.x.a"]) >> returning("b", 2, outputs=["scratch.x.b"]) >> peek()
    )


@case
def outputs_into_something_that_is_no_dictionary() -> Built:
    return Built(
        Flow() >> returning("a", 1, outputs=["scratch.x"]) >> returning("b", 2, outputs=["scratch.x.y.z"]) >> peek()
    )


@case
def outputs_replace_a_result() -> Built:
    return Built(Flow() >> returning("a", 1) >> returning("b", 2, outputs=["results.a"]) >> step(lambda a: a, "c"))


@case
def outputs_into_the_result_of_another_task() -> Built:
    source = step(lambda: {"k": 1}, "a")
    return Built(Flow() >> source >> returning("b", 2, outputs=["results.a.l"]) >> step(lambda a: {**a}, "c"))


@case
def outputs_to_places_nobody_knows() -> Built:
    return Built(Flow() >> returning("a", 1, outputs=["artifacts.x", "nowhere.y", "", "scratch."]) >> peek())


@case
def outputs_to_a_root_alone() -> Built:
    return Built(Flow() >> returning("a", 1, outputs=["scratch", "results", "params"]) >> peek())


@case
def outputs_of_a_task_that_failed() -> Built:
    return Built(network(failing("a", fail_policy="isolate", outputs=["scratch.x", "results.y"])))


# --- Networks: failures ----------------------------------------------------------------------------------------------


@case
def failure_of_the_only_task() -> Built:
    return Built(Flow() >> failing("a"))


@case
def failure_in_a_chain() -> Built:
    return Built(Flow() >> returning("a", 1) >> failing("b", KeyError("k")) >> returning("c", 2) >> returning("d"))


@case
def failure_of_a_join() -> Built:
    return Built(Flow() >> [returning("a", 1), returning("b", 2)] >> failing("c") >> [returning("d"), returning("e")])


@case
def failure_with_an_error_of_the_users_own() -> Built:
    class OddError(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}", code)

    return Built(Flow() >> failing("a", OddError(7)))


@case
def failure_with_a_group_of_errors() -> Built:
    return Built(Flow() >> failing("a", ExceptionGroup("both", [ValueError("x"), KeyError("y")])))


@case
def failure_with_a_cancelled_future() -> Built:
    return Built(Flow() >> failing("a", concurrent.futures.CancelledError("gone")))


@case
def failure_with_a_timeout_of_the_tasks_own() -> Built:
    return Built(Flow() >> failing("a", TimeoutError("my own"), timeout_sec=30))


@case
def failure_policy_retry() -> Built:
    return Built(Flow() >> failing("a", fail_policy="retry") >> returning("b"))


@case
def isolated_failure_of_the_only_task() -> Built:
    return Built(Flow() >> failing("a", fail_policy="isolate"))


@case
def isolated_failure_beside_others() -> Built:
    return Built(
        Flow() >> returning("a", 1) >> [failing("b", fail_policy="isolate"), returning("c", 3), returning("d", 4)]
    )


@case
def isolated_failure_before_one_task() -> Built:
    return Built(Flow() >> failing("a", fail_policy="isolate") >> returning("b"))


@case
def isolated_failure_before_a_join() -> Built:
    return Built(Flow() >> [failing("a", fail_policy="isolate"), returning("b", 2)] >> returning("c"))


@case
def isolated_task_that_succeeds() -> Built:
    return Built(Flow() >> returning("a", 1, fail_policy="isolate") >> returning("b", 2))


@case
def all_isolated_failures() -> Built:
    return Built(network(*(failing(name, fail_policy="isolate") for name in "abc")))


@case
def stop_after_an_isolated_failure() -> Built:
    def once_a_failed(ctx: Any) -> int:
        while ctx.run_context.tasks["a"].value != "FAILED":
            time.sleep(0.001)
        return 1

    a, b, c = failing("a", fail_policy="isolate"), step(once_a_failed, "b"), failing("c")
    after(c, b)
    return Built(network(a, b, c))


@case
def retries_until_success() -> Built:
    return Built(Flow() >> flaky("a", 2, retries=2) >> step(lambda a: a, "b"))


@case
def retries_not_needed() -> Built:
    return Built(Flow() >> flaky("a", 0, retries=3))


@case
def retries_exhausted() -> Built:
    return Built(Flow() >> flaky("a", 5, retries=1) >> returning("b"))


@case
def retries_exhausted_in_isolation() -> Built:
    return Built(network(flaky("a", 5, retries=1, fail_policy="isolate"), returning("b", 2)))


@case
def retries_of_a_missing_reference() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$node.q.output"}, retries=1))


@case
def negative_retries() -> Built:
    return Built(Flow() >> flaky("a", 1, retries=-1))


@case
def timeout_not_reached() -> Built:
    return Built(Flow() >> returning("a", 1, timeout_sec=30) >> flaky("b", 1, timeout_sec=30.5, retries=1))


@case
def timeout_of_nothing_is_none() -> Built:
    return Built(Flow() >> returning("a", 1, timeout_sec=0))


# --- Networks: triggers ----------------------------------------------------------------------------------------------


@case
def any_with_two_successes() -> Built:
    return Built(network(a := returning("a"), b := returning("b"), after(returning("c", trigger_policy="ANY"), a, b)))


@case
def any_with_one_isolated_failure() -> Built:
    a, b, c = failing("a", fail_policy="isolate"), returning("b", 2), returning("c", 3, trigger_policy="ANY")
    return Built(network(a, b, after(c, a, b)))


@case
def any_with_failures_only() -> Built:
    a, b = failing("a", fail_policy="isolate"), failing("b", fail_policy="isolate")
    return Built(network(a, b, after(returning("c", trigger_policy="ANY"), a, b)))


@case
def any_with_one_dependency() -> Built:
    return Built(network(a := returning("a", 1), after(returning("b", trigger_policy="ANY"), a)))


@case
def any_with_one_dependency_that_fails() -> Built:
    a = failing("a", fail_policy="isolate")
    return Built(network(a, after(returning("b", trigger_policy="ANY"), a)))


@case
def any_without_dependencies() -> Built:
    return Built(Flow() >> returning("a", 1, trigger_policy="ANY"))


def _late(late: TaskWrapper, begun: threading.Event) -> Built:
    a = returning("a", 1)
    c = step(begun.set, "c", trigger_policy="ANY")
    return Built(network(a, late, after(c, a, late)))


@case
def any_goes_on_before_the_other_succeeds() -> Built:
    begun = threading.Event()
    return _late(step(lambda: begun.wait(10), "b"), begun)


def _waits_then_fails(begun: threading.Event, **options: Any) -> TaskWrapper:
    def fail() -> None:
        begun.wait(10)
        raise ValueError("late")

    return step(fail, "b", **options)


@case
def any_goes_on_before_the_other_fails() -> Built:
    begun = threading.Event()
    return _late(_waits_then_fails(begun), begun)


@case
def any_goes_on_before_the_other_fails_in_isolation() -> Built:
    begun = threading.Event()
    return _late(_waits_then_fails(begun, fail_policy="isolate"), begun)


@case
def trigger_nobody_knows_means_all() -> Built:
    a, b = returning("a", 1), returning("b", 2)
    return Built(network(a, b, after(step(lambda a, b: a + b, "c", trigger_policy="any"), a, b)))


@case
def all_after_any() -> Built:
    a, b = failing("a", fail_policy="isolate"), returning("b", 2)
    c = after(returning("c", 3, trigger_policy="ANY"), a, b)
    return Built(network(a, b, c, after(step(lambda b, c: [b, c], "d"), b, c)))


# --- Programs: one block ---------------------------------------------------------------------------------------------


@case
def switch_takes_the_case_that_fits() -> Built:
    chosen = switch("$ctx.params.x")["one" >> returning("a", 1), "two" >> returning("b", 2)]
    return Built(Flow() >> returning("s") >> chosen >> returning("e"), {"x": "two"})


@case
def switch_takes_the_first_of_equal_cases() -> Built:
    chosen = switch("$ctx.params.x")[1 >> returning("a", "int"), True >> returning("b", "bool")]
    return Built(Flow() >> chosen, {"x": 1.0})


@case
def switch_takes_the_default() -> Built:
    chosen = switch("$ctx.params.x")["*" >> returning("d"), "one" >> returning("a", 1), "*" >> returning("d2")]
    return Built(Flow() >> chosen, {"x": "three"})


@case
def switch_prefers_a_case_to_the_default() -> Built:
    chosen = switch("$ctx.params.x")["*" >> returning("d"), "one" >> returning("a", 1)]
    return Built(Flow() >> chosen, {"x": "one"})


@case
def switch_on_the_word_for_the_default() -> Built:
    chosen = switch("$ctx.params.x")["one" >> returning("a"), "*" >> returning("d")]
    return Built(Flow() >> chosen, {"x": "__default__"})


@case
def switch_without_a_match() -> Built:
    chosen = switch("$ctx.params.x")["one" >> returning("a")]
    return Built(Flow() >> returning("s", 1) >> chosen >> returning("e"), {"x": "two"})


@case
def switch_on_a_result() -> Built:
    chosen = switch("$ctx.results.a.kind")["big" >> returning("b"), "small" >> returning("c")]
    return Built(Flow() >> returning("a", {"kind": "small"}) >> chosen)


@case
def switch_on_an_expression() -> Built:
    chosen = switch("$ctx.params.x * 2 > 5 and not $ctx.params.y in 'abc'")[
        True >> returning("a"), False >> returning("b")
    ]
    return Built(Flow() >> chosen, {"x": 3, "y": "d"})


@case
def switch_on_the_environment() -> Built:
    return Built(Flow() >> switch("$env.PATH != ''")[True >> returning("a"), "*" >> returning("b")])


@case
def switch_on_something_missing() -> Built:
    return Built(Flow() >> returning("s", 1) >> switch("$ctx.params.nothing")["*" >> returning("a")])


@case
def switch_on_an_expression_that_fails() -> Built:
    return Built(Flow() >> switch("$ctx.params.x / 0")["*" >> returning("a")], {"x": 1})


@case
def switch_with_several_steps_in_a_case() -> Built:
    steps = returning("a", 1) >> add("b", inputs={"x": "$node.a.output"}) >> step(lambda b: b, "c")
    return Built(Flow() >> switch("$ctx.params.x")[1 >> steps], {"x": 1})


@case
def repeat_a_task() -> Built:
    built = Built(Flow())
    built.flow >>= noting(built, "a")[3]
    return built


@case
def repeat_several_steps() -> Built:
    built = Built(Flow())
    built.flow >>= (noting(built, "a") >> noting(built, "b"))[2]
    return built


@case
def repeat_never() -> Built:
    return Built(Flow() >> returning("a", 1)[0] >> returning("b", 2))


@case
def repeat_as_often_as_an_expression_says() -> Built:
    return Built(Flow() >> counter("a")[Expression("$ctx.params.n + 1")], {"n": 2})


@case
def repeat_a_negative_number_of_times() -> Built:
    return Built(Flow() >> counter("a")[Expression("$ctx.params.n")], {"n": -1})


@case
def repeat_a_number_of_times_that_is_text() -> Built:
    return Built(Flow() >> counter("a")[Expression("$ctx.params.n")], {"n": "2"})


@case
def repeat_true_times() -> Built:
    return Built(Flow() >> counter("a")[Expression("$ctx.params.n")], {"n": True})


@case
def repeat_until_a_round_fails() -> Built:
    def third(ctx: Any) -> int:
        if ctx.loop.index == 2:
            raise ValueError("third time")
        return int(ctx.loop.index)

    return Built(Flow() >> step(third)[5] >> returning("b"))


@case
def repeat_with_collect() -> Built:
    body = SubFlowNode([TaskNode(counter("a").task)])
    return Built(Flow() >> FlowFragment([RepeatNode(body, 2, collect="last")]))


@case
def for_each_with_a_name() -> Built:
    built = Built(Flow(), {"items": ["x", {"k": 1}, None]})
    note = step(lambda ctx: built.notes.append(ctx.get_var("it")), "a")
    built.flow >>= note["$ctx.params.items as it"]
    return built


@case
def for_each_without_a_name() -> Built:
    built = Built(Flow(), {"items": [3, 1]})
    built.flow >>= noting(built, "a")["$ctx.params.items"]
    return built


@case
def for_each_over_a_result() -> Built:
    built = Built(Flow())
    built.flow >>= returning("a", (1, 2))
    built.flow >>= noting(built, "b")["$ctx.results.a as n"]
    return built


@case
def for_each_over_nothing() -> Built:
    return Built(Flow() >> counter("a")["$ctx.params.items as it"] >> returning("b"), {"items": []})


@case
def for_each_over_text() -> Built:
    return Built(Flow() >> counter("a")["$ctx.params.items as it"], {"items": "abc"})


@case
def for_each_over_something_missing() -> Built:
    return Built(Flow() >> counter("a")["$ctx.results.nobody as it"])


@case
def for_each_with_a_name_for_the_index() -> Built:
    built = Built(Flow(), {"items": ["x", "y"]})
    note = step(lambda ctx: built.notes.append((ctx.get_var("at"), ctx.get_var("it"))), "a")
    body = SubFlowNode([TaskNode(note.task)])
    built.flow >>= FlowFragment([ForEachNode(body, Expression("$ctx.params.items"), "it", "at")])
    return built


@case
def name_of_a_loop_is_gone_after_it() -> Built:
    loop = counter("a")["$ctx.params.items as it"]
    return Built(Flow() >> loop >> switch("$ctx.it")["*" >> returning("b")], {"items": [1]})


@case
def for_each_changes_its_own_list() -> Built:
    def grow(ctx: Any) -> None:
        if len(ctx.params["items"]) < 4:
            ctx.params["items"].append(0)

    return Built(Flow() >> step(grow)["$ctx.params.items as it"] >> peek(), {"items": [1, 2]})


@case
def until_a_condition_holds() -> Built:
    built = Built(Flow())
    built.flow >>= (noting(built, "n") >> counter("a")) % "$ctx.results.a >= 3"
    return built


@case
def until_holds_after_one_round() -> Built:
    return Built(Flow() >> counter("a") % ("$ctx.results.a == 1", 1))


@case
def until_never_holds() -> Built:
    return Built(Flow() >> counter("a") % ("$ctx.results.a > 9", 3) >> returning("b"))


@case
def until_never_holds_and_has_no_limit() -> Built:
    return Built(Flow() >> counter("a") % "$ctx.results.a < 0")


@case
def until_without_a_limit_in_so_many_words() -> Built:
    return Built(Flow() >> counter("a") % ("$ctx.results.a >= 2", 0))


@case
def until_looks_at_its_own_loop() -> Built:
    return Built(Flow() >> step(lambda ctx: ctx.loop.condition, "a") % "$ctx.loop.index >= 2")


@case
def until_a_condition_that_fails() -> Built:
    return Built(Flow() >> counter("a") % "$ctx.results.a.size > 1")


@case
def until_the_body_fails() -> Built:
    return Built(Flow() >> (counter("a") >> failing("b")) % "$ctx.results.a > 1")


# --- Programs: blocks in blocks, and tasks in them -------------------------------------------------------------------


@case
def loops_in_loops() -> Built:
    built = Built(Flow(), {"xs": [1, 2], "ys": ["a", "b"]})
    inner = noting(built, "a")["$ctx.params.ys as y"] >> noting(built, "b")
    built.flow >>= inner["$ctx.params.xs as x"]
    return built


@case
def names_of_both_loops_in_an_inner_one() -> Built:
    built = Built(Flow(), {"xs": [1, 2], "ys": [10, 20]})
    note = step(lambda ctx: built.notes.append((ctx.get_var("x"), ctx.get_var("y"))), "a")
    built.flow >>= note["$ctx.params.ys as y"]["$ctx.params.xs as x"]
    return built


@case
def for_each_over_the_item_of_the_loop_around_it() -> Built:
    built = Built(Flow(), {"rows": [[1, 2], [], [3]]})
    built.flow >>= noting(built, "a")["$ctx.row as cell"]["$ctx.params.rows as row"]
    return built


@case
def repeat_as_often_as_the_item_says() -> Built:
    built = Built(Flow(), {"ns": [2, 0, 1]})
    built.flow >>= noting(built, "a")[Expression("$ctx.n")]["$ctx.params.ns as n"]
    return built


@case
def until_in_repeat() -> Built:
    built = Built(Flow())
    built.flow >>= (noting(built, "a") % ("$ctx.loop.iteration == 2", 5) >> noting(built, "b"))[2]
    return built


@case
def until_in_until_exceeds() -> Built:
    return Built(Flow() >> (counter("a") % ("$ctx.results.a < 0", 2)) % ("$ctx.results.a > 3", 3))


@case
def switch_in_for_each() -> Built:
    built = Built(Flow(), {"kinds": ["a", "b", "c", "a"]})
    chosen = switch("$ctx.kind")["a" >> noting(built, "ta"), "b" >> noting(built, "tb"), "*" >> noting(built, "td")]
    built.flow >>= chosen["$ctx.params.kinds as kind"]
    return built


@case
def switch_in_for_each_without_a_match() -> Built:
    chosen = switch("$ctx.kind")["a" >> counter("ta")]
    return Built(Flow() >> chosen["$ctx.params.kinds as kind"] >> returning("e"), {"kinds": ["a", "b"]})


@case
def switch_in_switch() -> Built:
    inner = switch("$ctx.params.y")[1 >> returning("a"), "*" >> returning("b")]
    outer = switch("$ctx.params.x")[1 >> (returning("c") >> inner >> returning("d")), "*" >> returning("e")]
    return Built(Flow() >> outer >> returning("f"), {"x": 1, "y": 2})


@case
def loops_of_a_switch_in_a_loop() -> Built:
    built = Built(Flow())
    chosen = switch("$ctx.loop.index % 2")[0 >> noting(built, "even")[2], 1 >> noting(built, "odd") % ("1 == 1", 2)]
    built.flow >>= chosen[3]
    return built


@case
def loops_by_number_in_an_expression() -> Built:
    built = Built(Flow())
    built.flow >>= (noting(built, "a") % ("$ctx.loop.count == 3 and $ctx.loop.iteration >= 2", 3))[2]
    return built


@case
def same_task_in_several_places() -> Built:
    a = counter("a")
    return Built(Flow() >> a >> a >> a[2] >> switch("$ctx.results.a")[4 >> a, "*" >> returning("b")] >> a)


@case
def two_tasks_of_the_same_name() -> Built:
    return Built(Flow() >> returning("x", 1) >> step(lambda x: x + 1, "x")[2])


@case
def two_functions_without_a_name() -> Built:
    return Built(Flow() >> step(lambda: 1) >> step(lambda: 2)[1])


@case
def task_named_like_the_second_place_of_another() -> Built:
    a = counter("a")
    return Built(Flow() >> a >> a >> returning("a:2", "own") >> returning("b")[1])


@case
def list_before_a_block_is_not_run() -> Built:
    return Built(Flow() >> returning("a", 1) >> [returning("b"), returning("c")] >> returning("d", 1)[2])


@case
def inputs_in_a_loop() -> Built:
    body = add("a", inputs={"x": "$ctx.params.total"}, outputs=["params.total"])
    return Built(Flow() >> body[3] >> peek(), {"total": 10})


@case
def outputs_in_a_loop_are_seen_by_expressions() -> Built:
    body = counter("a", outputs=["scratch.deep.n"])
    return Built(Flow() >> body % "$ctx.scratch.deep.n == 3" >> peek())


@case
def results_by_name_in_a_loop() -> Built:
    return Built(
        Flow() >> returning("total", 0) >> step(lambda total: total + 2, "total2", outputs=["results.total"])[3]
    )


@case
def retries_in_a_loop() -> Built:
    return Built(Flow() >> flaky("a", 1, retries=1)[2])


@case
def retries_exhausted_in_a_loop() -> Built:
    return Built(Flow() >> flaky("a", 9, retries=1)[2] >> returning("b"))


@case
def isolated_failure_in_a_loop() -> Built:
    return Built(Flow() >> failing("a", fail_policy="isolate")[2] >> returning("b"))


@case
def isolated_failure_before_a_block() -> Built:
    return Built(Flow() >> failing("a", fail_policy="isolate") >> returning("b")[2])


@case
def isolated_failure_after_a_block() -> Built:
    return Built(Flow() >> returning("b")[2] >> failing("a", fail_policy="isolate"))


@case
def failure_before_a_block() -> Built:
    return Built(Flow() >> failing("a") >> returning("b")[2])


@case
def failure_after_a_block() -> Built:
    return Built(Flow() >> returning("b")[2] >> failing("a") >> returning("c"))


@case
def any_has_no_meaning_in_a_program() -> Built:
    return Built(Flow() >> returning("a", 1, trigger_policy="ANY") >> returning("b", 2, trigger_policy="ANY")[2])


@case
def missing_reference_in_a_loop() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$node.later.output"})[2] >> returning("later"))


@case
def variable_set_by_a_task() -> Built:
    def give(ctx: Any) -> None:
        ctx.set_var("n", 2)

    return Built(Flow() >> step(give) >> counter("a")[Expression("$ctx.n")])


@case
def results_that_are_not_json_in_a_loop() -> Built:
    built = Built(Flow())
    built.flow >>= step(lambda: {1, 2}, "a")
    built.flow >>= step(lambda a: [*sorted(a)], "b")["$ctx.params.items"]
    built.params["items"] = [1, 2]
    return built


@pytest.mark.parametrize("name", CASES)
def test_the_two_engines_agree(engine: Engine, name: str) -> None:
    agree(engine, CASES[name])


def test_flows_that_share_a_task_do_not_see_each_other(engine: Engine) -> None:
    """pyoco writes the edges of both flows onto the shared task; ours reads those of the flow it is given."""
    shared, first, second = step(lambda: "s", "s"), returning("a", 1), returning("b", 2)
    one, other = Flow(name="one") >> first >> shared, Flow(name="other") >> second >> shared
    before = attributes(one), attributes(other)
    assert run_on_ours(engine, Built(one)).results == {"a": 1, "s": "s"}
    assert run_on_ours(engine, Built(other)).results == {"b": 2, "s": "s"}
    assert (attributes(one), attributes(other)) == before
    assert shared.task.dependencies == {first.task, second.task}


def test_one_flow_may_be_run_twice(engine: Engine) -> None:
    flow = diamond().flow
    before = attributes(flow)
    assert run_on_ours(engine, Built(flow)) == run_on_ours(engine, Built(flow))
    assert attributes(flow) == before


def test_cases_are_built_anew() -> None:
    for build in CASES.values():
        one, other = build().flow, build().flow
        assert not {id(task) for task in one.tasks} & {id(task) for task in other.tasks}


def test_cases_of_failure_fail(engine: Engine) -> None:
    """Or the comparison would compare nothing."""
    _, _, ours, _ = run_on_both(engine, CASES["failure_in_a_chain"])
    assert ours.status == "FAILED"
    assert ours.error == ("KeyError", "'k'")
    assert ours.tasks == {"a": "SUCCEEDED", "b": "FAILED", "c": "PENDING", "d": "PENDING"}

"""What tasks of a network receive, on both engines: inputs, arguments by name, the context."""

import dataclasses
import decimal
from typing import Any

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import (
    Build,
    Built,
    Cases,
    add,
    agree,
    peek,
    returning,
    step,
)

case = Cases()


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
    return Built(Flow() >> step(lambda x: x, "a", inputs={"x": "$node.missing.output"}))


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
def unknown_selector() -> Built:
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
def default_of_an_argument_that_is_not_given() -> Built:
    return Built(Flow() >> step(lambda x=3: x, "a"))


@case
def argument_that_is_not_given() -> Built:
    return Built(Flow() >> step(lambda missing: missing, "a"))


@case
def input_the_function_does_not_take() -> Built:
    return Built(Flow() >> step(lambda: 1, "a", inputs={"x": 1}))


@case
def keyword_arguments_of_any_name() -> Built:
    return Built(Flow() >> step(lambda **given: sorted(given), "a", inputs={"x": 1, "y": 2}), {"z": 3})


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


@pytest.mark.parametrize("build", case.values(), ids=case)
def test_the_two_engines_agree(engine: Engine, build: Build) -> None:
    agree(engine, build)

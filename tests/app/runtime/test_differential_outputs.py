"""What tasks of a network return, and where it is kept, on both engines."""

import decimal

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import (
    Build,
    Built,
    Cases,
    agree,
    failing,
    network,
    peek,
    returning,
    step,
)

case = Cases()
THING = object()


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
def outputs_to_unknown_places() -> Built:
    return Built(Flow() >> returning("a", 1, outputs=["artifacts.x", "nowhere.y", "", "scratch."]) >> peek())


@case
def outputs_to_a_root_alone() -> Built:
    return Built(Flow() >> returning("a", 1, outputs=["scratch", "results", "params"]) >> peek())


@case
def outputs_of_a_task_that_failed() -> Built:
    return Built(network(failing("a", fail_policy="isolate", outputs=["scratch.x", "results.y"])))


@pytest.mark.parametrize("build", case.values(), ids=case)
def test_the_two_engines_agree(engine: Engine, build: Build) -> None:
    agree(engine, build)

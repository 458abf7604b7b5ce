"""Programs with one block, on both engines: switch, repeat, for-each, until."""

from typing import Any

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.expressions import Expression  # type: ignore[import-untyped]
from pyoco.dsl.nodes import ForEachNode, RepeatNode, SubFlowNode, TaskNode  # type: ignore[import-untyped]
from pyoco.dsl.syntax import FlowFragment, switch  # type: ignore[import-untyped]

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import (
    Build,
    Built,
    Cases,
    add,
    agree,
    counter,
    failing,
    noting,
    peek,
    returning,
    step,
)

case = Cases()


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


def _collecting(mode: str) -> Built:
    """What a loop is to collect is read and checked by pyoco, which then does nothing with it."""
    body = SubFlowNode([TaskNode(counter("a").task)])
    loop = ForEachNode(body, Expression("$ctx.params.items"), "it", None, collect=mode)
    return Built(Flow() >> FlowFragment([loop]) >> step(lambda a: a, "behind"), {"items": [1, 2, 3]})


@case
def for_each_that_collects_a_list() -> Built:
    return _collecting("list")


@case
def for_each_that_collects_the_first() -> Built:
    return _collecting("first")


@case
def for_each_that_collects_flattened() -> Built:
    return _collecting("flatten")


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
    return Built(Flow() >> counter("a")["$ctx.results.missing as it"])


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


@pytest.mark.parametrize("build", case.values(), ids=case)
def test_the_two_engines_agree(engine: Engine, build: Build) -> None:
    agree(engine, build)

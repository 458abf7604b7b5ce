"""Programs with blocks in blocks, and tasks in them, on both engines."""

from typing import Any

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.expressions import Expression  # type: ignore[import-untyped]
from pyoco.dsl.syntax import switch  # type: ignore[import-untyped]

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import (
    Build,
    Built,
    Cases,
    add,
    agree,
    counter,
    failing,
    flaky,
    noting,
    peek,
    returning,
    step,
)

case = Cases()


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


@pytest.mark.parametrize("build", case.values(), ids=case)
def test_the_two_engines_agree(engine: Engine, build: Build) -> None:
    agree(engine, build)

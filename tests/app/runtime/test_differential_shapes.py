"""Networks of every shape, on both engines."""

import pytest
from pyoco.core.models import Flow, Task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import (
    Build,
    Built,
    Cases,
    add,
    after,
    agree,
    attributes,
    network,
    returning,
    run_on_ours,
    step,
)

case = Cases()


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


@pytest.mark.parametrize("build", case.values(), ids=case)
def test_the_two_engines_agree(engine: Engine, build: Build) -> None:
    agree(engine, build)


def test_one_flow_may_be_run_twice(engine: Engine) -> None:
    flow = diamond().flow
    before = attributes(flow)
    assert run_on_ours(engine, Built(flow)) == run_on_ours(engine, Built(flow))
    assert attributes(flow) == before

"""Edges belong to a flow: a second flow that shares tasks does not change the first."""

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import Engine
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.model import Network, Trigger
from tests.app.runtime.pyoco_side import network, step


def tasks(names: str = "abcd") -> tuple[TaskWrapper, ...]:
    return tuple(step(lambda: 1, name) for name in names)


def edges(flow: Flow) -> Mapping[str, Any]:
    body = read_flow(flow).model.body
    assert isinstance(body, Network)
    return {name: "".join(sources) for name, sources in body.depends_on.items() if sources}


def triggers(flow: Flow) -> dict[str, Trigger]:
    body = read_flow(flow).model.body
    assert isinstance(body, Network)
    return {task.name: task.trigger for task in body.tasks}


def test_a_chain_adds_nothing_to_a_fan_of_the_same_tasks() -> None:
    a, b, c, d = tasks()
    fan = Flow("fan") >> a >> [b, c] >> d
    before = edges(fan)
    chain = Flow("chain") >> a >> b >> c >> d
    assert edges(fan) == before == {"b": "a", "c": "a", "d": "bc"}
    assert edges(chain) == {"b": "a", "c": "b", "d": "c"}


def test_two_flows_may_go_in_opposite_directions() -> None:
    a, b, c, _ = tasks()
    there = Flow("there") >> a >> b >> c
    back = Flow("back") >> (c >> b >> a)
    assert (edges(there), edges(back)) == ({"b": "a", "c": "b"}, {"b": "c", "a": "b"})


def test_a_flow_that_loops_over_shared_tasks_leaves_no_edges() -> None:
    a, b, c, _ = tasks()
    loop = Flow("loop") >> (c >> b)[2] >> (b >> a) % "$ctx.loop.index > 1"
    beside = Flow("beside") >> [a, b, c]
    assert loop.has_control_flow()
    assert edges(beside) == {}


@pytest.mark.parametrize("right", [lambda b, c: [b, c], lambda b, c: b & c, lambda b, c: b | c, lambda b, c: (b, c)])
def test_every_kind_of_group_is_the_flows_own(right: Any) -> None:
    a, b, c, d = tasks()
    one = Flow("one") >> a >> right(b, c) >> d
    other = Flow("other") >> right(d, c) >> right(b, a)
    assert edges(one) == {"b": "a", "c": "a", "d": "bc"}
    assert edges(other) == {"a": "cd", "b": "cd"}


def test_both_flows_run_as_they_were_written() -> None:
    order: list[str] = []
    a, b, c = (step(lambda name=name: order.append(name), name) for name in "abc")
    there, back = Flow("there") >> a >> b >> c, Flow("back") >> c >> b >> a
    with Engine() as engine:
        for flow, expected in ((there, "abc"), (back, "cba")):
            order.clear()
            assert engine.run(flow).status == "COMPLETED"
            assert "".join(order) == expected


def test_an_edge_that_was_stated_before_holds_for_both() -> None:
    a, b, c, d = tasks()
    _ = (a & b) >> c
    one = Flow("one") >> [a, b, c]
    chain = Flow("chain") >> a >> c
    other = Flow("other") >> [a, b, c, d]
    assert edges(one) == edges(other) == {"c": "ab"}
    assert edges(chain) == {"c": "a"}


def test_an_edge_that_is_stated_later_holds_for_the_only_flow_that_has_it() -> None:
    a, b, c, d = tasks()
    flow, other = Flow("flow") >> [a, b, c], Flow("other") >> c >> d
    _ = (a & b) >> c
    assert (edges(flow), edges(other)) == ({"c": "ab"}, {"d": "c"})
    assert edges(network(a, b, c)) == {"c": "ab"}


def test_an_edge_that_may_be_meant_for_either_of_two_flows_is_refused_and_both_are_named() -> None:
    a, b, c, d = tasks()
    first = Flow("first") >> [a, b] >> d >> c
    _ = (a & b) >> c
    second = Flow("second") >> [a, b, c]
    assert edges(second) == {"c": "ab"}
    with pytest.raises(FlowError) as caught:
        read_flow(first)
    line = test_an_edge_that_may_be_meant_for_either_of_two_flows_is_refused_and_both_are_named.__code__.co_firstlineno
    assert f"flow 'first' ({__file__}, line {line + 2})" in str(caught.value)
    assert f"flow 'second' ({__file__}, line {line + 4})" in str(caught.value)
    assert " >> c was stated outside of a flow" in str(caught.value)


def test_a_branch_for_another_flow_does_not_change_what_a_join_waits_for() -> None:
    a, b, c, d = tasks()
    x, y = tasks("xy")
    first = Flow("first") >> a >> [b, c] >> d
    _ = (x | y) >> d
    second = Flow("second") >> [x, y, d]
    assert (triggers(first)["d"], triggers(second)["d"]) == (Trigger.ALL, Trigger.ANY)
    d.task.trigger_policy = "ALL"
    assert triggers(second)["d"] is Trigger.ALL, "an option belongs to the task"


def test_a_flow_made_before_our_import_is_read_as_pyoco_wrote_it() -> None:
    program = textwrap.dedent(
        """
        from pyoco import Flow, task
        def a(): ...
        def b(): ...
        def c(): ...
        a, b, c = task(a), task(b), task(c)
        early = Flow("early") >> a >> [b, c]
        from pyoco_server.flows.from_pyoco import read_flow
        late = Flow("late") >> c >> b
        for flow in early, late:
            print(dict(sorted(read_flow(flow).model.body.depends_on.items())))
        """
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert printed == "{'a': (), 'b': ('a',), 'c': ('a',)}\n{'b': ('c',), 'c': ()}\n"


def test_a_long_flow_is_recorded_in_linear_time() -> None:
    """Each ``>>`` looks at what it adds, not at all there is; quadratic work would time out here."""
    flow = Flow("long")
    for number in range(5_000):
        flow >>= step(lambda: 1, f"t{number}")
    assert len(edges(flow)) == 4_999


def test_the_tasks_of_pyoco_are_not_changed() -> None:
    a, b, c, _ = tasks()
    one, other = Flow("one") >> a >> c, Flow("other") >> b >> c
    assert (edges(one), edges(other)) == ({"c": "a"}, {"c": "b"})
    assert c.task.dependencies == {a.task, b.task}

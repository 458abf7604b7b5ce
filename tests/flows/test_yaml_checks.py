"""Errors in a readable flow.yaml, which are found at its submission."""

import pytest

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.yaml.checks import check_submitted
from pyoco_server.flows.yaml.document import read_flow_yaml
from tests.app.runtime.flows import Calls, fan_flow

TASKS = """
tasks:
  a: { callable: "shop:a" }
  b: { callable: "shop:b", inputs: { x: $node.a.output.y, n: 3, t: a text } }
"""


def check(graph: str, tasks: str = TASKS) -> None:
    check_submitted(read_flow_yaml(f'flow:\n  graph: "{graph}"\n{tasks}', name="flow"))


FINE = [
    "a >> b",
    "a >> b >> a",
    "a >> a_2:a >> b",
    "repeat(count=2){ a } >> b",
    "a >> ( b & n:a )",
    "switch(on=x){ 1: a >> b; default: a }",
]


@pytest.mark.spec("004 REQ-0018")
@pytest.mark.parametrize("graph", FINE)
def test_a_correct_flow_is_accepted(graph: str) -> None:
    check(graph)


@pytest.mark.parametrize("tasks", ["", "tasks: { a: {} }", "tasks: { b: { use: mail/send } }"])
def test_a_task_without_an_entry_in_the_file_may_be_that_of_a_plug_in(tasks: str) -> None:
    check("a >> b >> unheard_of", tasks)


def test_a_result_may_be_kept_under_another_name() -> None:
    check(
        "a >> b",
        "tasks:\n"
        "  a: { callable: 'm:f', outputs: [scratch.y, results.kept.here] }\n"
        "  b: { callable: 'm:f', inputs: { x: $node.kept.output } }\n",
    )


@pytest.mark.spec("004 REQ-0018", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize(
    "graph",
    [
        "a >> a",
        "b >> a >> a",
        "repeat(count=2){ a >> a }",
        "( b & a >> a )",
        "switch(on=x){ 1: a >> a; default: b }",
        "switch(on=x){ 1: b; default: a >> a }",
    ],
)
def test_a_task_that_follows_itself_is_refused(graph: str) -> None:
    with pytest.raises(FlowSyntaxError, match="'a' follows itself") as caught:
        check(graph)
    assert (caught.value.line, caught.value.column) == (5, 18)
    assert "a_2:a" in caught.value.remedy


@pytest.mark.spec("004 REQ-0018", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize(("graph", "remedy"), [("b", "name a task"), ("aa:a >> b", "did you mean 'aa'?")])
def test_an_input_from_a_task_that_the_graph_does_not_have_is_refused(graph: str, remedy: str) -> None:
    with pytest.raises(FlowSyntaxError, match="'x' of the task 'b' is of 'a', which the graph does not have") as caught:
        check(graph)
    assert caught.value.line == 6
    assert remedy in caught.value.remedy


def test_a_flow_of_python_objects_is_not_checked_here() -> None:
    model, _ = read_flow(fan_flow(Calls()))
    check_submitted(model)

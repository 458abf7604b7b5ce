"""Flows given as pyoco's objects."""

import pytest
from pyoco.core.models import Flow, Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.model import Network


def step(name: str, value: object = None) -> TaskWrapper:
    return TaskWrapper(Task(func=lambda: value, name=name))


def same_function_twice() -> Flow:
    def work() -> None: ...

    return Flow() >> TaskWrapper(Task(func=work, name="a")) >> TaskWrapper(Task(func=work, name="a"))


@pytest.mark.parametrize(
    "flow",
    [
        Flow() >> step("a", 1) >> step("a", 2),
        Flow() >> step("a", 1) >> step("b") >> step("a", 2) >> step("c"),
        Flow() >> (step("a", 1) >> step("b") >> step("a", 2)),
        Flow() >> [step("a", 1), step("b")] >> step("a", 2),
        same_function_twice(),
    ],
    ids=["in a row", "apart", "in a fragment", "one in a list", "with one function"],
)
def test_two_tasks_of_one_name_in_a_network_are_refused(flow: Flow) -> None:
    with pytest.raises(FlowError, match=r"two different tasks have the name 'a'.* give one another name"):
        read_flow(flow)


def test_tasks_of_one_name_in_two_flows_are_accepted() -> None:
    shared = step("s")
    one, other = Flow() >> step("a", 1) >> shared, Flow() >> step("a", 2) >> shared
    for flow, value in ((one, 1), (other, 2)):
        read = read_flow(flow)
        assert isinstance(read.model.body, Network)
        assert read.model.body.depends_on == {"a": (), "s": ("a",)}
        assert read.functions["a"]() == value


def test_two_tasks_of_one_name_in_a_program_are_both_kept() -> None:
    read = read_flow(Flow() >> step("a", 1) >> step("a", 2)[1])
    assert [function() for function in read.functions.values()] == [1, 2]

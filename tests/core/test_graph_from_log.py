"""Every log has a graph: what is inconsistent is left out and noted, never refused."""

import json
from typing import Any

import pytest

from pyoco_server.core import CancelMode, Graph, fold, graph_from_log, graph_to_dict, orchestrate, read_graph
from pyoco_server.core.events import Event
from tests.build import T0, Ids, Run, chain, event

Node = tuple[Any, ...]
_START: Node = ("s", "Start", ["a"], 0)
_END: Node = ("z", "Success", [], 1)


def created(node_id: str, node_type: str, to: list[str], inputs: int, **node: Any) -> Event:
    """NODE_CREATED with a place in the graph."""
    meta = {"node": node, "edges": [{"to": target, "on": "success"} for target in to], "inputs": inputs}
    return event("NODE_CREATED", nodeId=node_id, nodeType=node_type, meta=meta)


def read(*nodes: Node, **options: dict[str, Any]) -> tuple[set[str], str]:
    """The ids of the graph's nodes, and all notes as one text; an orchestrator can work on the graph."""
    events = [event("EXECUTION_CREATED", graphId="g")]
    events += [created(*node, **options.get(node[0], {})) for node in nodes]
    found = read_graph(events)
    known = {node[0] for node in nodes}
    assert {*found.graph.nodes, *(node.node_id for node in found.left_out)} >= known
    for mode in CancelMode:
        orchestrate(found.graph, fold(events), now=T0, new_id=Ids(), cancel_mode=mode)
    return set(found.graph.nodes), "; ".join(found.notes)


def test_a_log_of_ours_has_no_notes() -> None:
    run = Run(chain("a", "b"))
    found = read_graph(run.log)
    assert (found.notes, found.left_out) == ([], [])
    assert graph_to_dict(found.graph) == graph_to_dict(run.graph) == graph_to_dict(graph_from_log(run.log))


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, True), (1, 1.0), (0, False), (1, 2)])
def test_logs_share_a_graph_only_if_their_nodes_are_written_the_same(left: object, right: object) -> None:
    def graph(value: object) -> Graph:
        return graph_from_log(
            [event("EXECUTION_CREATED", graphId="g"), created("s", "Start", ["z"], 0, own=value), created(*_END)]
        )

    is_same_json = json.dumps(left) == json.dumps(right)
    assert (graph(left) is graph(right)) == is_same_json
    assert [graph(value).nodes["s"].extra["own"] for value in (left, right)] == [left, right]
    assert [type(graph(value).nodes["s"].extra["own"]) for value in (left, right)] == [type(left), type(right)]


def test_the_first_creation_of_a_node_describes_it() -> None:
    again = created("s", "Start", ["a"], 0, own=2)
    log = [event("EXECUTION_CREATED", graphId="g"), created("s", "Start", ["z"], 0, own=1), again, created(*_END)]
    assert graph_from_log(log).nodes["s"].extra["own"] == 1
    assert [edge.target for edge in graph_from_log(log).edges] == ["z"]


def test_a_node_of_another_graph_is_left_out_and_noted() -> None:
    """Events as in a log in which a worker continued the run with another flow than it was started with."""
    nodes, notes = read(_START, ("a", "Task", ["z"], 1), _END, ("new", "Task", ["z"], 1))
    assert nodes == {"s", "a", "z"}
    assert "'new' cannot be reached" in notes


@pytest.mark.parametrize(
    ("nodes", "left", "note"),
    [
        ([_START, ("a", "Task", ["z", "gone", "gone"], 1), _END], {"s", "a", "z"}, "'a' leads to 'gone'"),
        ([_START, ("a", "Task", ["z", "z"], 1), _END], {"s", "a", "z"}, "two edges"),
        ([("a", "Task", ["z"], 1), _END], {":start", ":end"}, "no node of type Start"),
        ([_START, ("t", "Start", ["a"], 0), ("a", "Task", ["z"], 1), _END], {"s", "a", "z"}, "'t' is a second Start"),
        ([_START, ("a", "Task", ["z", "s"], 1), _END], {"s", "a", "z"}, "leads to the Start node 's'"),
        ([_START, ("a", "Task", ["z"], 1), ("z", "Success", ["a"], 1)], {"s", "a", "z"}, "leave the end node 'z'"),
        (
            [("s", "Start", ["a", "z"], 0), ("a", "Task", ["b"], 1), ("b", "Task", ["a"], 1), _END],
            {"s", "z"},
            "is part of a cycle",
        ),
        ([("s", "Start", ["a", "z"], 0), ("a", "Task", [], 1), _END], {"s", "z"}, "no path leads from node 'a'"),
        ([_START, ("a", "Task", ["z"], 1), ("j", "Join", ["z"], 1), _END], {"s", "a", "z"}, "to the Join 'j'"),
        ([_START, ("a", "Task", [], 1)], {":start", ":end"}, "no path"),
    ],
)
def test_what_does_not_fit_is_left_out_and_noted(nodes: list[Node], left: set[str], note: str) -> None:
    found, notes = read(*nodes)
    assert found == left
    assert note in notes


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"policy": "no such policy"}, "options of node 'a' cannot be read"),
        ({"required": 7}, "the join rule of node 'a' is not valid"),
        ({"losers": "leave"}, "has an option that its type does not have"),
        ({"losers": "leave", "required": 2, "mine": 1}, "the join rule of node 'a' is not valid"),
    ],
)
def test_options_that_are_not_valid_are_ignored_and_noted(options: dict[str, Any], note: str) -> None:
    nodes, notes = read(_START, ("a", "Task", ["z"], 1), _END, a=options)
    assert nodes == {"s", "a", "z"}
    assert note in notes


def test_a_node_without_a_way_on_success_is_left_out() -> None:
    only_failure = {"edges": [{"to": "z", "on": "failure"}], "inputs": 1}
    events = [
        event("EXECUTION_CREATED", graphId="g"),
        created("s", "Start", ["a", "z"], 0),
        event("NODE_CREATED", nodeId="a", nodeType="Task", meta=only_failure),
        created("z", "Success", [], 2),
    ]
    found = read_graph(events)
    assert set(found.graph.nodes) == {"s", "z"}
    assert "no edge leaves node 'a' on success" in found.notes[0]

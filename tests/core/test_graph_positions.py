"""Logs that another program started: nodes created without their place in the graph, or not created at all."""

from typing import Any

import pytest

from pyoco_server.core import (
    ExecutionState,
    ExecutionStatus,
    Graph,
    NodeStatus,
    advance,
    fold,
    orchestrate,
    state_to_dict,
)
from pyoco_server.core.propagation import assign_graph_positions
from tests.build import T0, Ids, Run, chain, command, diamond, event, graph, payload, state_of


def foreign(on: Graph, **done: NodeStatus) -> ExecutionState:
    """A log that names nodes by id and type only; those in ``done`` have ended."""
    events = [event("EXECUTION_CREATED", graphId=on.graph_id), event("EXECUTION_STARTED")]
    events += [event("NODE_CREATED", nodeId=node.node_id, nodeType=node.node_type) for node in on.nodes.values()]
    events += [event(f"NODE_{status.value}", nodeId=node_id) for node_id, status in done.items()]
    return state_of(*events)


def test_a_join_waits_for_all_its_branches() -> None:
    on = diamond("a", "b")
    done = NodeStatus.SUCCEEDED
    state = foreign(on, s=done, f=done, a=done)
    made = orchestrate(on, state, now=T0, new_id=Ids())
    gates = [payload(found) for found in made if found.type == "JOIN_GATE_UPDATED"]
    assert [(gate["completedBranches"], gate["isPassable"]) for gate in gates] == [(["a"], False)]
    assert [found.type for found in made if found.type == "JOIN_PASSED"] == []


def test_a_join_passes_when_they_are_in() -> None:
    on, done = diamond("a", "b"), NodeStatus.SUCCEEDED
    made = orchestrate(on, foreign(on, s=done, f=done, a=done, b=done), now=T0, new_id=Ids())
    assert "JOIN_PASSED" in [found.type for found in made]
    assert ("NODE_READY", "after") in [(found.type, payload(found).get("nodeId")) for found in made]


def test_retries_come_from_the_graph() -> None:
    on = graph("s:Start a z:Success", "s>a a>z", a={"retries": 1})
    state = fold([event("NODE_STARTED", nodeId="a", attempt=1)], foreign(on, s=NodeStatus.SUCCEEDED))
    made = advance(on, state, command("FailNode", "a"), now=T0, new_id=Ids())
    assert [found.type for found in made] == ["NODE_FAIL_REPORTED"]


def test_missing_nodes_are_created_before_anything_follows() -> None:
    on = chain("a", "b")
    state = state_of(
        event("EXECUTION_CREATED", graphId="g"),
        event("EXECUTION_STARTED"),
        event("NODE_CREATED", nodeId="a", nodeType="Task"),
        event("NODE_READY", nodeId="a"),
        event("NODE_STARTED", nodeId="a", attempt=1),
    )
    made = advance(on, state, command("SucceedNode", "a"), now=T0, new_id=Ids())
    assert fold(made, state).nodes["b"].status is NodeStatus.READY


def test_a_foreign_log_can_be_driven_to_its_end() -> None:
    on = diamond("a", "b")
    run = Run(on)
    run.state = foreign(on)
    run.commit(orchestrate(on, run.state, now=T0, new_id=run.new_id))
    run.succeed("a", "b", "after")
    assert run.state.status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("started", [True, False])
def test_a_log_of_this_package_needs_no_positions(started: bool) -> None:
    run = Run(chain("a"), started=started)
    assert assign_graph_positions(run.graph, run.state) is run.state


def test_nodes_that_are_not_in_the_graph_are_left_alone() -> None:
    on = chain("a")
    state = fold([event("NODE_CREATED", nodeId="own", nodeType="Task")], foreign(on))
    assert assign_graph_positions(on, state).nodes["own"] is state.nodes["own"]


PARTS = [["s"], ["s", "j"], ["j"], ["a"], ["s", "f", "a", "b"], ["s", "f", "a", "b", "j", "after", "z"]]


@pytest.mark.parametrize("known", PARTS, ids=str)
@pytest.mark.parametrize("meta", [None, {"edges": [{"to": "f"}]}, {"retries": 3}], ids=str)
def test_a_run_ends_the_same_whatever_part_of_its_log_another_program_wrote(known: list[str], meta: Any) -> None:
    on = diamond("a", "b")
    run = Run(on, started=False)
    log = [event("EXECUTION_CREATED", graphId="g")]
    described = {} if meta is None else {"meta": meta}
    log += [event("NODE_CREATED", nodeId=n, nodeType=on.nodes[n].node_type, **described) for n in known]
    log += [event("NODE_CREATED", nodeId=f"own-{number}", nodeType="Task") for number in range(10)]
    run.state = state_of(*log)
    run.do("StartExecution")
    run.succeed("a")
    assert run.status("j") is NodeStatus.IDLE
    run.succeed("b", "after")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_a_log_that_names_other_edges_than_the_graph_raises_nothing() -> None:
    on = diamond("a", "b")
    log = [event("EXECUTION_CREATED", graphId="g")]
    wrong = {"inputs": 1, "edges": [{"to": "s"}]}
    log += [event("NODE_CREATED", nodeId=n, nodeType=on.nodes[n].node_type, meta=wrong) for n in on.nodes]
    run = Run(on, started=False)
    run.state = state_of(*log)
    run.do("StartExecution")
    run.succeed("a")
    assert run.status("a") is NodeStatus.SUCCEEDED


def test_the_outcomes_a_node_s_edges_follow_are_listed_once_and_in_their_order() -> None:
    on = graph("s:Start a b c d z:Success", "s>a a>b:failure a>c a>d:failure b>z c>z d>z")
    handled = state_to_dict(Run(on).state)["nodes"]["a"]["handles"]
    assert handled == ["failure", "success"]

"""What follows from an event: the next nodes, forks and joins, and a cancel that converges."""

from typing import Any

import pytest

from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    Event,
    EventType,
    ExecutionStatus,
    Graph,
    NodeStatus,
    advance,
    cancel_node,
    confirm_stopped,
    orchestrate,
)
from tests.build import T0, Ids, Run, chain, command, diamond, event, graph, payload, state_of, types

ENGINE = Actor(ActorKind.SYSTEM, "engine")


def payloads(made: list[Event], event_type: str) -> list[dict[str, Any]]:
    """Return the payloads of the events of one type."""
    return [payload(found) for found in made if found.type == event_type]


def about(made: list[Event], event_type: str) -> list[str]:
    """The nodes the events of one type are about."""
    return [said["nodeId"] for said in payloads(made, event_type)]


def cancel(run: Run, node_id: str) -> list[Event]:
    return run.commit(cancel_node(run.graph, run.state, node_id, actor=ENGINE, now=run.now, new_id=run.new_id))


def stopped(run: Run, node_id: str) -> list[Event]:
    return run.commit(confirm_stopped(run.graph, run.state, node_id, actor=ENGINE, now=run.now, new_id=run.new_id))


def grace_is_over(run: Run) -> list[Event]:
    made = orchestrate(run.graph, run.state, now=run.now, new_id=run.new_id, cancel_mode=CancelMode.IMMEDIATE)
    return run.commit(made)


# --- The next nodes --------------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §5.1")
def test_starting_the_execution_makes_its_first_node_ready() -> None:
    run = Run(chain("a", "b"))
    assert (run.status("a"), run.status("b")) == (NodeStatus.READY, NodeStatus.IDLE)


@pytest.mark.spec("001 §5.1")
def test_a_success_makes_the_next_node_ready() -> None:
    made = Run(chain("a", "b")).succeed("a")
    assert types(made) == ["NODE_SUCCEEDED", "NODE_READY"]
    assert about(made, "NODE_READY") == ["b"]


@pytest.mark.spec("001 §5.1")
def test_a_failure_makes_the_node_on_its_failure_edge_ready() -> None:
    run = Run(graph("s:Start a next mend y:Success z:Success", "s>a a>next next>z a>mend:failure mend>y"))
    assert about(run.fail("a"), "NODE_READY") == ["mend"]


@pytest.mark.spec("001 §5.1")
def test_a_cancel_of_a_node_makes_the_node_on_its_cancel_edge_ready() -> None:
    run = Run(graph("s:Start a next tidy y:Success z:Success", "s>a a>next next>z a>tidy:cancel tidy>y"))
    assert about(cancel(run, "a"), "NODE_READY") == ["tidy"]


@pytest.mark.spec("001 §5.1")
def test_a_node_that_needs_two_others_waits_for_both() -> None:
    run = Run(graph("s:Start f:Fork a b c z:Success", "s>f f>a f>b a>c b>c c>z"))
    assert about(run.succeed("a"), "NODE_READY") == []
    assert about(run.succeed("b"), "NODE_READY") == ["c"]


@pytest.mark.spec("001 §5.1")
def test_what_is_ready_already_is_not_made_ready_again() -> None:
    run = Run(chain("a", "b"))
    run.do("MarkNodeReady", "b")
    assert about(run.succeed("a"), "NODE_READY") == []


@pytest.mark.spec("001 §5.1")
@pytest.mark.parametrize("name", ["ReportNodeProgress", "PutNodeWaiting"])
def test_a_node_that_has_not_ended_makes_nothing_ready(name: str) -> None:
    run = Run(chain("a", "b"))
    run.start("a")
    assert about(run.do(name, "a"), "NODE_READY") == []


@pytest.mark.spec("001 §5.1")
def test_consequences_have_the_system_as_actor_and_name_their_cause() -> None:
    run = Run(chain("a", "b"))
    run.start("a")
    succeeded, ready = run.do("SucceedNode", "a", correlationId="request-9")
    assert (ready.actor.kind, ready.causation_id) == (ActorKind.SYSTEM, succeeded.event_id)
    assert ready.correlation_id == "request-9"


@pytest.mark.spec("001 §5.1")
def test_the_execution_completes_when_its_last_node_has_succeeded() -> None:
    run = Run(chain("a"))
    assert types(run.succeed("a"))[-1] == "EXECUTION_COMPLETED"
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Forks and joins -------------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §5.2")
def test_reaching_a_fork_opens_it_and_makes_its_branches_ready() -> None:
    run = Run(diamond("a", "b", "c"))
    assert payloads(run.log, "FORK_OPENED") == [{"nodeId": "f", "branchIds": ["a", "b", "c"]}]
    assert [run.status(branch) for branch in "abc"] == [NodeStatus.READY] * 3


@pytest.mark.spec("001 §5.2")
def test_a_fork_is_opened_before_its_branches_are_ready() -> None:
    log = Run(diamond("a", "b")).log
    opened = types(log).index(EventType.FORK_OPENED)
    assert about(log[opened:], "NODE_READY") == ["a", "b"]


@pytest.mark.spec("001 §5.2")
def test_a_branch_that_succeeds_updates_the_gate() -> None:
    (gate,) = payloads(Run(diamond("a", "b")).succeed("a"), "JOIN_GATE_UPDATED")
    assert gate == {
        "nodeId": "j",
        "expectedBranches": ["a", "b"],
        "completedBranches": ["a"],
        "failedBranches": [],
        "canceledBranches": [],
        "policy": "ALL_SUCCESS",
        "isPassable": False,
    }


@pytest.mark.spec("001 §5.2")
def test_a_branch_that_fails_updates_the_gate() -> None:
    (gate,) = payloads(Run(diamond("a", "b", join={"policy": "ALL_DONE"})).fail("a"), "JOIN_GATE_UPDATED")
    assert (gate["completedBranches"], gate["failedBranches"], gate["isPassable"]) == ([], ["a"], False)


@pytest.mark.spec("001 §5.2")
def test_a_branch_that_is_canceled_updates_the_gate() -> None:
    (gate,) = payloads(cancel(Run(diamond("a", "b", join={"policy": "ALL_DONE"})), "a"), "JOIN_GATE_UPDATED")
    assert (gate["completedBranches"], gate["canceledBranches"], gate["isPassable"]) == ([], ["a"], False)


@pytest.mark.spec("001 §5.2")
def test_a_join_is_not_passed_before_its_condition_holds() -> None:
    run = Run(diamond("a", "b"))
    made = run.succeed("a")
    assert payloads(made, "JOIN_PASSED") == []
    assert run.status("after") is NodeStatus.IDLE


@pytest.mark.spec("001 §5.2")
def test_the_last_branch_passes_the_join_and_makes_the_next_node_ready() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    made = run.succeed("b")
    assert [gate["isPassable"] for gate in payloads(made, "JOIN_GATE_UPDATED")] == [True]
    assert about(made, "JOIN_PASSED") == ["j"]
    assert run.status("after") is NodeStatus.READY


@pytest.mark.spec("001 §5.2")
def test_the_gate_is_recorded_before_the_join_and_the_join_before_the_next_node() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    made = run.succeed("b")
    wanted = [("JOIN_GATE_UPDATED", "j"), ("JOIN_PASSED", "j"), ("NODE_READY", "after")]
    assert [step for found in made if (step := (found.type.value, payload(found)["nodeId"])) in wanted] == wanted


@pytest.mark.spec("001 §5.2")
@pytest.mark.parametrize("late", ["SucceedNode", "FailNode"])
def test_a_join_is_passed_once(late: str) -> None:
    run = Run(diamond("a", "b", join={"policy": "ANY_SUCCESS", "losers": "leave"}))
    run.start("b")
    run.succeed("a")
    made = run.do(late, "b")
    assert payloads(made, "JOIN_PASSED") == []
    assert about(run.log, "JOIN_PASSED") == ["j"]


# --- A cancel converges ----------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §5.3")
def test_the_worker_of_a_running_node_is_asked_to_stop() -> None:
    run = Run(diamond("a", "b"))
    run.do("StartNode", "a", workerId="w1")
    made = run.do("CancelExecution", reason="enough")
    assert payloads(made, "NODE_INTERRUPT_REQUESTED") == [
        {"nodeId": "a", "attempt": 1, "workerId": "w1", "reason": "enough"}
    ]


@pytest.mark.spec("001 §5.3")
def test_nodes_that_no_worker_executes_are_canceled_at_once() -> None:
    run = Run(diamond("a", "b", "c"))
    run.start("a", "c")
    run.do("PutNodeWaiting", "c")
    run.do("CancelExecution")
    assert {node_id for node_id in run.state.nodes if run.status(node_id) == "CANCELED"} == {
        "b",
        "c",
        "j",
        "after",
        "z",
    }
    assert (run.status("a"), run.status("f")) == (NodeStatus.RUNNING, NodeStatus.SUCCEEDED)


@pytest.mark.spec("001 §5.3")
def test_the_cancel_is_complete_only_when_no_node_is_running() -> None:
    run = Run(diamond("a", "b"))
    run.start("a", "b")
    assert payloads(run.do("CancelExecution"), "EXECUTION_CANCELED") == []
    assert types(stopped(run, "a")) == ["NODE_CANCELED"]
    assert types(stopped(run, "b")) == ["NODE_CANCELED", "EXECUTION_CANCELED"]


@pytest.mark.spec("001 §5.3", "001 §4.3")
@pytest.mark.parametrize("started", [True, False])
def test_a_cancel_with_no_running_node_is_complete_at_once(started: bool) -> None:
    made = Run(chain("a"), started=started).do("CancelExecution")
    assert (types(made)[0], types(made)[-1]) == ("EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED")


@pytest.mark.spec("001 §5.3", "001 §4.3")
def test_a_cancel_may_be_made_not_to_wait() -> None:
    run = Run(chain("a"))
    run.start("a")
    made = run.do("CancelExecution", cancel_mode=CancelMode.IMMEDIATE)
    assert about(made, "NODE_INTERRUPT_REQUESTED") == ["a"]
    assert types(made)[-1] == "EXECUTION_CANCELED"


@pytest.mark.spec("001 §5.3")
def test_the_end_of_the_grace_period_ends_a_cancel_without_the_worker() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution")
    made = grace_is_over(run)
    assert types(made) == ["NODE_CANCELED", "EXECUTION_CANCELED"], "the worker was asked before, and once is enough"


@pytest.mark.spec("001 §5.3")
@pytest.mark.parametrize("on", [chain("a", "b"), diamond("a", "b")], ids=["chain", "diamond"])
def test_a_canceled_execution_leaves_no_node_open(on: Graph) -> None:
    run = Run(on)
    run.succeed("a")
    run.start("b")
    run.do("CancelExecution")
    stopped(run, "b")
    assert run.state.status is ExecutionStatus.CANCELED
    assert {run.status(node_id) for node_id in run.state.nodes} == {NodeStatus.SUCCEEDED, NodeStatus.CANCELED}


@pytest.mark.spec("001 §5.3")
def test_a_success_after_the_request_makes_nothing_ready() -> None:
    run = Run(chain("a", "b"))
    run.start("a")
    run.do("CancelExecution")
    made = run.do("SucceedNode", "a", observed=True)
    assert types(made) == ["NODE_SUCCEEDED", "EXECUTION_CANCELED"]


@pytest.mark.spec("001 §5.3")
def test_once_converged_there_is_nothing_left_to_do() -> None:
    run = Run(chain("a"))
    run.do("CancelExecution")
    assert grace_is_over(run) == []


@pytest.mark.spec("001 §6")
def test_a_repeated_start_adds_nothing_to_a_log_without_nodes() -> None:
    bare = state_of(event("EXECUTION_CREATED", graphId="g"), event("EXECUTION_STARTED"))
    assert advance(chain("a"), bare, command("StartExecution"), now=T0, new_id=Ids()) == []
    made = orchestrate(chain("a"), bare, now=T0, new_id=Ids())
    assert [payload(found)["nodeId"] for found in made if found.type == "NODE_READY"] == ["s", "a"]

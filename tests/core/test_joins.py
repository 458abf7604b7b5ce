"""Forks and joins in executions."""

from typing import Any

import pytest

from pyoco_server.core import Event, EventType, ExecutionStatus, Graph, NodeStatus
from tests.build import Run, diamond, event, graph, payload, types

ANY = {"policy": "ANY_SUCCESS"}
DONE = {"policy": "ALL_DONE"}
TWO = {"policy": "CUSTOM", "required": 2}
MAJORITY = {"policy": "CUSTOM", "predicate": "majority"}


def gates(events: list[Event]) -> list[dict[str, Any]]:
    """Return the gates that these events record, without the fields that never change."""
    updates = [payload(found) for found in events if found.type is EventType.JOIN_GATE_UPDATED]
    return [{key: value for key, value in gate.items() if key not in {"nodeId", "policy"}} for gate in updates]


def statuses(run: Run, *node_ids: str) -> list[str]:
    return [run.status(node_id).value for node_id in node_ids]


def times(run: Run, name: str, node_id: str) -> int:
    """Return how often the log has this event of the node."""
    return sum(found.type == name and payload(found).get("nodeId") == node_id for found in run.log)


# --- Forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §7.1")
def test_fork_makes_the_heads_of_its_branches_ready() -> None:
    run = Run(diamond("a", "b", "c"))
    opened = next(found for found in run.log if found.type is EventType.FORK_OPENED)
    assert payload(opened) == {"nodeId": "f", "branchIds": ["a", "b", "c"]}
    assert statuses(run, "f", "a", "b", "c", "j") == ["SUCCEEDED", "READY", "READY", "READY", "IDLE"]


@pytest.mark.spec("003 §7.1")
def test_fork_opens_before_its_branches_are_ready() -> None:
    log = types(Run(diamond("a", "b")).log)
    assert log.index(EventType.FORK_OPENED) < len(log) - 2
    assert log[-2:] == [EventType.NODE_READY, EventType.NODE_READY]


# --- Policies --------------------------------------------------------------------------------------------------------

# Policy, what the branches do in turn (+ succeeds, - fails), how join and execution stand afterwards.
SCENARIOS = [
    ({}, "+a", "IDLE", "ACTIVE"),
    ({}, "+a +b", "IDLE", "ACTIVE"),
    ({}, "+a +b +c", "SUCCEEDED", "ACTIVE"),
    ({}, "-a", "IDLE", "FAILED"),
    ({}, "+a +b -c", "IDLE", "FAILED"),
    (ANY, "+b", "SUCCEEDED", "ACTIVE"),
    (ANY, "-a", "IDLE", "ACTIVE"),
    (ANY, "-a -b", "IDLE", "ACTIVE"),
    (ANY, "-a -b +c", "SUCCEEDED", "ACTIVE"),
    (ANY, "-a -b -c", "IDLE", "FAILED"),
    (DONE, "-a -b", "IDLE", "ACTIVE"),
    (DONE, "-a +b -c", "SUCCEEDED", "ACTIVE"),
    (DONE, "-a -b -c", "SUCCEEDED", "ACTIVE"),
    (TWO, "+a", "IDLE", "ACTIVE"),
    (TWO, "-a", "IDLE", "ACTIVE"),
    (TWO, "+a +c", "SUCCEEDED", "ACTIVE"),
    (TWO, "-a +b +c", "SUCCEEDED", "ACTIVE"),
    (TWO, "-a -b", "IDLE", "FAILED"),
    (MAJORITY, "+a", "IDLE", "ACTIVE"),
    (MAJORITY, "+a +b", "SUCCEEDED", "ACTIVE"),
    (MAJORITY, "-a +b +c", "SUCCEEDED", "ACTIVE"),
    (MAJORITY, "+a -b -c", "IDLE", "FAILED"),
    (MAJORITY, "-a -b -c", "IDLE", "FAILED"),
    (MAJORITY, "-a -b +c", "IDLE", "FAILED"),
]


def play(run: Run, moves: str) -> Run:
    for move in moves.split():
        _ = run.succeed(move[1:]) if move[0] == "+" else run.fail(move[1:])
    return run


@pytest.mark.spec("003 §7.2")
@pytest.mark.parametrize(("join", "moves", "status", "ends"), SCENARIOS)
def test_join_passes_when_its_condition_holds(join: dict[str, Any], moves: str, status: str, ends: str) -> None:
    run = play(Run(diamond("a", "b", "c", join=join)), moves)
    assert (run.status("j"), run.state.status) == (status, ends)
    assert times(run, "JOIN_PASSED", "j") == (status == "SUCCEEDED")


@pytest.mark.spec("003 §7.2")
def test_passed_join_makes_the_next_node_ready_once() -> None:
    run = play(Run(diamond("a", "b")), "+a +b")
    assert run.status("after") is NodeStatus.READY
    assert times(run, "NODE_READY", "after") == 1
    run.succeed("after")
    assert run.state.status is ExecutionStatus.COMPLETED


@pytest.mark.spec("003 §7.2")
def test_gate_is_updated_when_each_branch_ends() -> None:
    run = Run(diamond("a", "b", "c", join=DONE))
    play(run, "+b -a +c")
    none: list[str] = []
    everyone = ["a", "b", "c"]
    rows = [(["b"], none, False), (["b"], ["a"], False), (["b", "c"], ["a"], True)]
    assert gates(run.log) == [
        {
            "expectedBranches": everyone,
            "completedBranches": completed,
            "failedBranches": failed,
            "canceledBranches": none,
            "isPassable": passable,
        }
        for completed, failed, passable in rows
    ]


@pytest.mark.spec("003 §7.2")
def test_gate_of_a_failed_branch_is_on_record_before_the_execution_fails() -> None:
    made = Run(diamond("a", "b")).fail("a")
    assert types(made)[-3:] == ["JOIN_GATE_UPDATED", "NODE_CANCELED", "EXECUTION_FAILED"]
    assert gates(made)[0]["failedBranches"] == ["a"]


@pytest.mark.spec("003 §7.2")
def test_failure_names_the_node_it_began_at() -> None:
    made = Run(diamond("a", "b")).fail("a")
    assert payload(made[-1])["failedNodeId"] == "a"
    assert payload(made[-1])["error"] == {"code": "E", "message": "broke"}


# --- Losers ----------------------------------------------------------------------------------------------------------


def test_losers_are_canceled_and_the_one_at_work_is_interrupted() -> None:
    run = Run(diamond("a", "b", "c", join=ANY))
    run.start("b")
    run.succeed("a")
    assert statuses(run, "a", "b", "c") == ["SUCCEEDED", "CANCELED", "CANCELED"]
    assert [times(run, "NODE_INTERRUPT_REQUESTED", node_id) for node_id in "abc"] == [0, 1, 0]
    assert [times(run, "NODE_CANCEL_REQUESTED", node_id) for node_id in "abc"] == [0, 1, 1]


def test_gate_lists_canceled_losers_and_they_fail_nothing() -> None:
    run = Run(diamond("a", "b", join=ANY))
    made = run.succeed("a")
    assert gates(made)[-1]["canceledBranches"] == ["b"]
    run.succeed("after")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_losers_can_be_left_to_end_by_themselves() -> None:
    run = Run(diamond("a", "b", join=ANY | {"losers": "leave"}))
    run.start("b")
    run.succeed("a", "after")
    assert (run.status("b"), run.state.status) == (NodeStatus.RUNNING, ExecutionStatus.ACTIVE)
    run.do("SucceedNode", "b")
    assert run.state.status is ExecutionStatus.COMPLETED
    assert times(run, "JOIN_PASSED", "j") == 1


def test_failure_of_a_left_loser_is_absorbed_by_the_passed_join() -> None:
    run = Run(diamond("a", "b", join=ANY | {"losers": "leave"}))
    play(run, "+a -b +after")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_whole_losing_branch_is_canceled() -> None:
    edges = "s>f f>a f>b1 b1>b2 b2>j a>j j>z"
    run = Run(graph("s:Start f:Fork a b1 b2 j:Join z:Success", edges, j=ANY))
    run.succeed("a")
    assert statuses(run, "b1", "b2") == ["CANCELED", "CANCELED"]
    assert run.state.status is ExecutionStatus.COMPLETED


def test_loser_that_also_leads_elsewhere_is_left() -> None:
    run = Run(graph("s:Start f:Fork a b c j:Join z:Success", "s>f f>a f>b a>j b>j b>c c>z j>z", j=ANY))
    run.succeed("a")
    assert run.status("b") is NodeStatus.READY
    run.succeed("b", "c")
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Nesting ---------------------------------------------------------------------------------------------------------


def nested(**inner: Any) -> Graph:
    """A fork inside a branch of another."""
    return graph(
        "s:Start f:Fork a g:Fork x y i:Join j:Join z:Success",
        "s>f f>a f>g g>x g>y x>i y>i i>j a>j j>z",
        i=inner.get("i", {}),
        j=inner.get("j", {}),
    )


@pytest.mark.spec("003 §7.1", "003 §7.2")
def test_nested_fork_and_join() -> None:
    run = Run(nested())
    run.succeed("x", "a")
    assert statuses(run, "i", "j") == ["IDLE", "IDLE"]
    made = run.succeed("y")
    assert [payload(found)["nodeId"] for found in made if found.type is EventType.JOIN_PASSED] == ["i", "j"]
    assert run.state.status is ExecutionStatus.COMPLETED


def test_failure_in_a_nested_branch_is_absorbed_by_the_outer_join() -> None:
    run = Run(nested(j=ANY))
    run.start("y")
    run.fail("x")
    assert statuses(run, "i", "j") == ["CANCELED", "IDLE"]
    run.succeed("a")
    assert run.status("j") is NodeStatus.SUCCEEDED


def test_failure_in_a_nested_branch_fails_the_execution_if_no_join_absorbs_it() -> None:
    run = Run(nested())
    run.fail("x")
    assert run.state.status is ExecutionStatus.FAILED
    assert statuses(run, "a", "y", "i", "j") == ["CANCELED", "CANCELED", "IDLE", "IDLE"]


def test_outer_losers_include_a_nested_fork() -> None:
    run = Run(nested(j=ANY))
    run.start("x")
    run.succeed("a")
    assert statuses(run, "x", "y", "i") == ["CANCELED", "CANCELED", "CANCELED"]
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Wide joins ------------------------------------------------------------------------------------------------------


def wide(branches: int, **join: Any) -> Run:
    return Run(diamond(*(f"n{number}" for number in range(branches)), join=join))


def settled_at_gates(run: Run) -> list[int]:
    return [len(gate["completedBranches"]) + len(gate["failedBranches"]) for gate in gates(run.log)]


def test_join_of_256_branches_records_its_gate_at_every_branch() -> None:
    run = wide(256)
    run.succeed(*(f"n{number}" for number in range(256)))
    assert settled_at_gates(run) == list(range(1, 257))


def test_wider_join_records_its_gate_at_doublings_and_when_it_decides() -> None:
    run = wide(257)
    run.succeed(*(f"n{number}" for number in range(257)))
    assert settled_at_gates(run) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 257]
    assert run.status("after") is NodeStatus.READY


def test_wide_join_records_the_branch_that_makes_it_passable() -> None:
    run = wide(300, policy="CUSTOM", required=5, losers="leave")
    run.succeed(*(f"n{number}" for number in range(7)))
    assert [(len(gate["completedBranches"]), gate["isPassable"]) for gate in gates(run.log)] == [
        (1, False),
        (2, False),
        (4, False),
        (5, True),
    ]


def test_wide_join_records_the_branch_that_blocks_it() -> None:
    run = wide(300)
    run.succeed("n0", "n1", "n2")
    run.fail("n3")
    assert settled_at_gates(run) == [1, 2, 4]
    assert run.state.status is ExecutionStatus.FAILED


def test_gate_is_kept_in_the_state() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    gate = run.state.join_gates["j"]
    assert (gate.completed_branches, gate.is_passable, gate.passed) == (("a",), False, False)
    run.succeed("b")
    gate = run.state.join_gates["j"]
    assert (gate.completed_branches, gate.is_passable, gate.passed) == (("a", "b"), True, True)


def test_nothing_follows_the_end_of_a_node_that_a_block_created() -> None:
    """Its end has no consequences in the graph, but the execution waits for it."""
    run = Run(diamond("a", "b", join=ANY))
    run.commit([event("NODE_CREATED", nodeId="extra", nodeType="Task"), event("NODE_READY", nodeId="extra")])
    run.succeed("a", "after")
    assert (run.status("z"), run.state.status) == (NodeStatus.SUCCEEDED, ExecutionStatus.ACTIVE)
    run.succeed("extra")
    assert run.state.status is ExecutionStatus.COMPLETED

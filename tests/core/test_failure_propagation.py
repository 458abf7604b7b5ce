"""Which nodes the end of one node affects: fail policies, edges for other outcomes, ends, implicit joins."""

import pytest

from pyoco_server.core import Actor, ActorKind, Event, EventType, ExecutionStatus, NodeStatus, cancel_node
from tests.build import Run, chain, diamond, graph, payload, types

ACTOR = Actor(ActorKind.SYSTEM, "policy")


def drop(run: Run, node_id: str) -> list[Event]:
    """Cancel one node, not the execution."""
    return run.commit(cancel_node(run.graph, run.state, node_id, actor=ACTOR, now=run.now, new_id=run.new_id))


def statuses(run: Run, node_ids: str) -> str:
    return " ".join(run.status(node_id).value for node_id in node_ids.split())


def skips(events: list[Event]) -> dict[str, tuple[str, str]]:
    """The nodes said to be skipped: by whom, and how that counts."""
    canceled = [payload(found) for found in events if found.type is EventType.NODE_CANCELED]
    return {gone["nodeId"]: (gone["skip"]["by"], gone["skip"]["countsAs"]) for gone in canceled if "skip" in gone}


# --- Fail policies ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §7.2")
def test_failure_ends_a_chain_and_leaves_what_was_never_reached() -> None:
    run = Run(chain("a", "b"))
    run.fail("a")
    assert run.state.status is ExecutionStatus.FAILED
    assert statuses(run, "a b z") == "FAILED IDLE IDLE"


@pytest.mark.spec("003 §7.2")
@pytest.mark.parametrize(("policy", "ends"), [("branch", "ACTIVE"), ("stop", "FAILED"), ("isolate", "ACTIVE")], ids=str)
def test_fail_policy_before_a_join_that_can_do_without_the_branch(policy: str, ends: str) -> None:
    edges = "s>f f>a f>b a>j b>j j>z"
    run = Run(
        graph("s:Start f:Fork a b j:Join z:Success", edges, a={"failPolicy": policy}, j={"policy": "ANY_SUCCESS"})
    )
    run.fail("a")
    assert run.state.status == ends


def test_stopping_failure_cancels_and_interrupts_the_others() -> None:
    edges = "s>f f>a f>b f>c a>j b>j c>j j>z"
    done = {"policy": "ALL_DONE"}
    run = Run(graph("s:Start f:Fork a b c j:Join z:Success", edges, a={"failPolicy": "stop"}, j=done))
    run.start("b")
    made = run.fail("a")
    assert types(made)[-4:] == ["NODE_INTERRUPT_REQUESTED", "NODE_CANCELED", "NODE_CANCELED", "EXECUTION_FAILED"]
    assert statuses(run, "a b c") == "FAILED CANCELED CANCELED"


def test_isolated_failure_skips_what_depends_on_it_and_the_rest_completes() -> None:
    edges = "s>f f>a f>b a>a2 a2>z b>y"
    run = Run(graph("s:Start f:Fork a a2 b z:Success y:Success", edges, a={"failPolicy": "isolate"}))
    assert skips(run.fail("a")) == {"a2": ("a", "isolated")}
    run.succeed("b")
    assert run.state.status is ExecutionStatus.COMPLETED
    assert statuses(run, "a a2 y z") == "FAILED CANCELED SUCCEEDED IDLE"


def test_isolated_failure_of_everything_still_completes() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"failPolicy": "isolate"}))
    run.fail("a")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_isolated_failure_counts_as_done() -> None:
    run = Run(graph("s:Start a j:Join z:Success", "s>a a>j j>z", a={"failPolicy": "isolate"}, j={"policy": "ALL_DONE"}))
    run.fail("a")
    assert statuses(run, "a j z") == "FAILED SUCCEEDED SUCCEEDED"


def test_isolated_failure_keeps_a_join_that_needs_all_from_passing() -> None:
    edges = "s>f f>a f>b a>j b>j j>after after>z b>y"
    nodes = "s:Start f:Fork a b j:Join after z:Success y:Success"
    run = Run(graph(nodes, edges, a={"failPolicy": "isolate"}))
    assert skips(run.fail("a")) == {}
    assert skips(run.succeed("b")) == {"j": ("a", "isolated"), "after": ("a", "isolated")}
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Retries ---------------------------------------------------------------------------------------------------------


def test_failure_is_final_only_when_all_attempts_are_used_up() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"retries": 1}))
    assert types(run.fail("a")) == ["NODE_FAIL_REPORTED"]
    assert (run.status("a"), run.state.status) == (NodeStatus.RUNNING, ExecutionStatus.ACTIVE)
    assert types(run.fail("a"))[:2] == ["NODE_FAIL_REPORTED", "NODE_FAILED"]
    assert (run.state.nodes["a"].attempt, run.state.status) == (2, ExecutionStatus.FAILED)


# --- Edges that follow other outcomes --------------------------------------------------------------------------------

RESCUE = ("s:Start a h z:Success", "s>a a>z a>h:failure h>z")


def test_failure_edge_is_taken_by_a_failure() -> None:
    run = Run(graph(*RESCUE))
    run.fail("a")
    assert (run.status("h"), run.state.status) == (NodeStatus.READY, ExecutionStatus.ACTIVE)
    run.succeed("h")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_failure_edge_is_dropped_by_a_success() -> None:
    run = Run(graph(*RESCUE))
    assert skips(run.succeed("a")) == {"h": ("a", "dropped")}
    assert run.state.status is ExecutionStatus.COMPLETED


def test_failure_of_the_rescue_fails_the_execution() -> None:
    run = Run(graph(*RESCUE))
    run.fail("a")
    run.fail("h")
    assert run.state.status is ExecutionStatus.FAILED


@pytest.mark.parametrize("end", ["succeed", "fail", "drop"])
def test_always_edge_is_taken_by_every_end(end: str) -> None:
    run = Run(graph("s:Start a t z:Success", "s>a a>t:always t>z"))
    {"succeed": lambda: run.succeed("a"), "fail": lambda: run.fail("a"), "drop": lambda: drop(run, "a")}[end]()
    assert run.status("t") is NodeStatus.READY
    run.succeed("t")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_cancel_edge_is_taken_by_a_canceled_node() -> None:
    run = Run(graph("s:Start a h z:Success", "s>a a>z a>h:cancel h>z"))
    drop(run, "a")
    assert statuses(run, "a h z") == "CANCELED READY IDLE"
    run.succeed("h")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_cancel_edge_is_no_help_against_a_failure() -> None:
    run = Run(graph("s:Start a h z:Success", "s>a a>z a>h:cancel h>z"))
    run.fail("a")
    assert run.state.status is ExecutionStatus.FAILED


def test_branch_not_chosen_is_no_longer_expected_by_the_join() -> None:
    run = Run(graph("s:Start a h j:Join z:Success", "s>a a>j a>h:failure h>j j>z"))
    made = run.succeed("a")
    gate = [payload(found) for found in made if found.type is EventType.JOIN_GATE_UPDATED][-1]
    assert (gate["expectedBranches"], gate["completedBranches"], gate["isPassable"]) == (["a"], ["a"], True)
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Canceled nodes --------------------------------------------------------------------------------------------------


def test_canceled_node_that_others_need_fails_the_execution() -> None:
    run = Run(chain("a", "b"))
    made = drop(run, "a")
    assert types(made) == ["NODE_CANCEL_REQUESTED", "NODE_CANCELED", "EXECUTION_FAILED"]
    assert payload(made[-1])["failedNodeId"] == "a"


def test_canceled_branch_is_absorbed_by_a_join_that_can_do_without() -> None:
    run = Run(diamond("a", "b", join={"policy": "ANY_SUCCESS"}))
    drop(run, "a")
    assert (run.state.status, run.state.join_gates["j"].canceled_branches) == (ExecutionStatus.ACTIVE, ("a",))
    run.succeed("b", "after")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_canceled_idle_node_is_skipped_at_once() -> None:
    """A node that is canceled before it is ready counts as canceled at once."""
    edges = "s>f f>a f>b a>a2 a2>j b>j j>z"
    run = Run(graph("s:Start f:Fork a a2 b j:Join z:Success", edges, j={"policy": "ANY_SUCCESS"}))
    drop(run, "a2")
    run.succeed("a")
    assert statuses(run, "a2 j") == "CANCELED IDLE"
    run.succeed("b")
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Ends ------------------------------------------------------------------------------------------------------------


def test_failed_end_fails_the_execution() -> None:
    run = Run(graph("s:Start a z:Success e:Failed", "s>a a>z a>e"))
    made = run.fail("a")
    assert types(made)[-4:] == ["NODE_READY", "NODE_STARTED", "NODE_FAILED", "EXECUTION_FAILED"]
    assert payload(made[-1])["failedNodeId"] == "e"
    assert payload(made[-1])["error"]["code"] == "FAILED_END"


def test_failed_end_is_not_reached_by_a_success() -> None:
    run = Run(graph("s:Start a z:Success e:Failed", "s>a a>z a>e"))
    run.succeed("a")
    assert (run.state.status, run.status("e")) == (ExecutionStatus.COMPLETED, NodeStatus.IDLE)


def test_failed_end_that_is_the_only_way_on_is_reached_by_a_success() -> None:
    run = Run(graph("s:Start a e:Failed", "s>a a>e"))
    run.succeed("a")
    assert run.state.status is ExecutionStatus.FAILED


@pytest.mark.spec("003 §5.1", "003 §8.3")
def test_canceled_end_cancels_the_execution() -> None:
    run = Run(graph("s:Start f:Fork a b c:Canceled z:Success", "s>f f>a f>b a>c b>z"))
    made = run.succeed("a")
    assert run.state.status is ExecutionStatus.CANCELED
    assert types(made)[-5:] == [
        "EXECUTION_CANCEL_REQUESTED",
        "NODE_CANCELED",
        "NODE_CANCELED",
        "NODE_CANCELED",
        "EXECUTION_CANCELED",
    ]


@pytest.mark.spec("003 §8.3")
def test_canceled_end_waits_for_work_in_progress() -> None:
    run = Run(graph("s:Start f:Fork a b c:Canceled z:Success", "s>f f>a f>b a>c b>z"))
    run.start("b")
    run.succeed("a")
    assert (run.state.status, run.state.is_cancel_requested) == (ExecutionStatus.ACTIVE, True)
    run.do("SucceedNode", "b", observed=True)
    assert run.state.status is ExecutionStatus.CANCELED


def test_execution_completes_when_nothing_is_under_way_any_more() -> None:
    run = Run(graph("s:Start f:Fork a b y:Success z:Success", "s>f f>a f>b a>y b>z"))
    run.succeed("a")
    assert (run.status("y"), run.state.status) == (NodeStatus.SUCCEEDED, ExecutionStatus.ACTIVE)
    assert types(run.succeed("b"))[-1] == "EXECUTION_COMPLETED"


# --- Implicit joins --------------------------------------------------------------------------------------------------

IMPLICIT = ("s:Start f:Fork a b t z:Success", "s>f f>a f>b a>t b>t t>z")


@pytest.mark.spec("003 §7.2")
def test_task_with_several_inputs_waits_for_all_of_them() -> None:
    run = Run(graph(*IMPLICIT))
    run.succeed("b")
    assert run.status("t") is NodeStatus.IDLE
    run.succeed("a")
    assert run.status("t") is NodeStatus.READY
    assert not any(found.type in {EventType.JOIN_GATE_UPDATED, EventType.JOIN_PASSED} for found in run.log)


@pytest.mark.spec("003 §7.2")
def test_task_with_a_failed_input_fails_the_execution() -> None:
    run = Run(graph(*IMPLICIT))
    run.succeed("b")
    run.fail("a")
    assert (run.state.status, run.status("t")) == (ExecutionStatus.FAILED, NodeStatus.IDLE)


def test_success_end_is_reached_by_the_first_branch() -> None:
    run = Run(graph("s:Start f:Fork a b z:Success", "s>f f>a f>b a>z b>z"))
    run.succeed("a")
    assert (run.status("z"), run.state.status) == (NodeStatus.SUCCEEDED, ExecutionStatus.ACTIVE)
    run.succeed("b")
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Blame -----------------------------------------------------------------------------------------------------------

ANY = {"policy": "ANY_SUCCESS"}
ISOLATE = {"failPolicy": "isolate"}


def test_join_blocked_by_an_isolated_failure_counts_as_the_failure_before_it() -> None:
    run = Run(graph("s:Start f:Fork a b j:Join z:Success", "s>f f>a f>b a>j b>j j>z", b=ISOLATE, j=ANY))
    run.fail("a")
    made = run.fail("b")
    assert (types(made)[-1], payload(made[-1])["failedNodeId"]) == ("EXECUTION_FAILED", "a")


def test_skip_names_the_node_that_failed_not_the_one_skipped_because_of_it() -> None:
    edges = "s>f f>a f>b a>a2 a2>j b>j j>z"
    run = Run(graph("s:Start f:Fork a a2 b j:Join z:Success", edges, b=ISOLATE, j=ANY))
    assert skips(run.fail("a")) == {"a2": ("a", "failed")}
    assert payload(run.fail("b")[-1])["failedNodeId"] == "a"


def test_skip_names_the_failed_node_behind_a_blocked_join() -> None:
    edges = "s>f f>a f>b a>i b>k b>i k>j i>j j>z"
    run = Run(graph("s:Start f:Fork a b k i:Join j:Join z:Success", edges, b=ISOLATE, i=ANY, j=ANY))
    run.fail("a")
    assert payload(run.fail("b")[-1])["failedNodeId"] == "a"


def test_skip_names_the_failed_node_when_a_later_join_absorbs_the_failure() -> None:
    edges = "s>f f>a f>b f>c a>i b>i i>t t>j c>j j>z"
    run = Run(graph("s:Start f:Fork a b c i:Join t j:Join z:Success", edges, b=ISOLATE, i=ANY, j=ANY))
    run.fail("a")
    assert skips(run.fail("b")) == {"i": ("a", "failed"), "t": ("a", "failed")}
    run.succeed("c")
    assert run.state.status is ExecutionStatus.COMPLETED


# --- Out of turn -----------------------------------------------------------------------------------------------------


def test_node_made_ready_out_of_turn_is_not_made_ready_again() -> None:
    run = Run(chain("a", "b"))
    run.do("MarkNodeReady", "b")
    run.succeed("a")
    assert sum(found.type == "NODE_READY" and payload(found)["nodeId"] == "b" for found in run.log) == 1
    run.succeed("b")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_failure_fails_the_execution_though_the_next_node_runs_out_of_turn() -> None:
    run = Run(chain("a", "b"))
    run.do("MarkNodeReady", "b")
    run.start("b")
    run.fail("a")
    assert (run.state.status, run.status("b")) == (ExecutionStatus.FAILED, NodeStatus.CANCELED)

"""What each event does when it is folded, and what it cannot do after a cancel or an end."""

import itertools
from datetime import timedelta
from typing import Any

import pytest

from pyoco_server.core import (
    CommandRejected,
    EventType,
    ExecutionState,
    ExecutionStatus,
    NodeStatus,
    RejectionCode,
    fold,
    handle,
    reduce,
)
from tests.build import T0, Ids, Run, chain, command, diamond, event, payload, state_of
from tests.core.shapes import PAYLOADS, fullest
from tests.core.states import ENDED_BY, cancel_requested, created, ended, started, with_node

ENDS = list(ENDED_BY)
OPEN_NODE = [NodeStatus.IDLE, NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING]
CANCELED = "EXECUTION_CANCELED"
LATER = T0 + timedelta(minutes=1)

REQUESTS = [name for name in PAYLOADS if name.endswith("_REQUESTED")]
REPORTS = [name for name in PAYLOADS if name.endswith("_REPORTED")]
DECIDES_NODE = {
    "NODE_READY": NodeStatus.READY,
    "NODE_STARTED": NodeStatus.RUNNING,
    "NODE_WAITING": NodeStatus.WAITING,
    "NODE_SUCCEEDED": NodeStatus.SUCCEEDED,
    "NODE_FAILED": NodeStatus.FAILED,
    "NODE_CANCELED": NodeStatus.CANCELED,
}


def about_node_a(event_type: str) -> dict[str, Any]:
    """A full payload; if it speaks of a node, then of ``a``."""
    fields = fullest(PAYLOADS[event_type])
    return fields | {"nodeId": "a"} if "nodeId" in fields else fields


def folded(state: ExecutionState, event_type: str, **fields: Any) -> ExecutionState:
    return reduce(state, event(event_type, at=LATER, **fields))


def statuses(state: ExecutionState) -> tuple[ExecutionStatus, dict[str, NodeStatus]]:
    return state.status, {node_id: node.status for node_id, node in state.nodes.items()}


# --- The execution ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("000 §0")
def test_the_log_alone_gives_the_state() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a", "b", "after")
    assert fold(run.log) == run.state


@pytest.mark.spec("000 §3.1")
def test_a_created_execution_is_active_on_its_graph() -> None:
    state = state_of(event("EXECUTION_CREATED", graphId="g", input={"x": 1}))
    assert (state.status, state.graph_id) == (ExecutionStatus.ACTIVE, "g")


@pytest.mark.spec("000 §3.2")
def test_a_started_execution_is_still_active() -> None:
    assert state_of(*started()).status is ExecutionStatus.ACTIVE


@pytest.mark.spec("000 §3.3", "000 §3.6", "000 §3.8")
@pytest.mark.parametrize("how", ENDS)
def test_an_active_execution_ends_as_the_event_says(how: ExecutionStatus) -> None:
    assert state_of(*ended(how)).status is how


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("EXECUTION_COMPLETED", marks=pytest.mark.spec("000 §3.3", "000 §5")),
        pytest.param("EXECUTION_FAILED", marks=pytest.mark.spec("000 §3.8", "000 §5")),
    ],
)
def test_after_a_cancel_request_no_other_end_is_taken(end: str) -> None:
    assert folded(state_of(*cancel_requested()), end).status is ExecutionStatus.ACTIVE


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("EXECUTION_COMPLETED", marks=pytest.mark.spec("000 §3.3")),
        pytest.param("EXECUTION_FAILED", marks=pytest.mark.spec("000 §3.8")),
    ],
)
def test_a_canceled_execution_takes_no_other_end_even_without_a_request(end: str) -> None:
    assert folded(state_of(*ended(ExecutionStatus.CANCELED)), end).status is ExecutionStatus.CANCELED


@pytest.mark.spec("000 §3.4")
@pytest.mark.parametrize("how", ENDS)
def test_archiving_leaves_the_statuses(how: ExecutionStatus) -> None:
    before = state_of(*ended(how))
    assert statuses(folded(before, "EXECUTION_ARCHIVED", reason="old")) == statuses(before)


@pytest.mark.spec("000 §2.B", "000 §3.5")
@pytest.mark.parametrize("order", list(itertools.permutations(ENDED_BY.values())), ids="-".join)
def test_after_a_cancel_request_only_canceled_can_come_of_it(order: tuple[str, ...]) -> None:
    state = state_of(*cancel_requested(), *(event(name) for name in order))
    assert state.status is ExecutionStatus.CANCELED


@pytest.mark.spec("000 §2.B")
@pytest.mark.parametrize("other", ["EXECUTION_COMPLETED", "EXECUTION_FAILED"])
def test_canceled_is_stronger_than_any_end_before_it(other: str) -> None:
    assert state_of(*started(), event(other), event(CANCELED)).status is ExecutionStatus.CANCELED


@pytest.mark.spec("000 §3.6", "000 §5")
@pytest.mark.parametrize("event_type", PAYLOADS)
def test_nothing_leads_out_of_canceled(event_type: str) -> None:
    state = folded(state_of(*ended(ExecutionStatus.CANCELED)), event_type, **about_node_a(event_type))
    assert state.status is ExecutionStatus.CANCELED


@pytest.mark.spec("000 §3.7")
def test_a_request_to_fail_is_not_a_failure() -> None:
    before = state_of(*with_node(NodeStatus.RUNNING))
    after = folded(before, "EXECUTION_FAIL_REQUESTED", reason="no use")
    assert statuses(after) == statuses(before)
    assert after.failed_at is None


@pytest.mark.spec("000 §5")
def test_the_time_of_the_first_cancel_request_stays() -> None:
    state = folded(state_of(*cancel_requested()), "EXECUTION_CANCEL_REQUESTED")
    assert state.cancel_requested_at == T0


@pytest.mark.spec("000 §5")
@pytest.mark.parametrize("event_type", PAYLOADS)
def test_nothing_takes_a_cancel_request_back(event_type: str) -> None:
    state = folded(state_of(*cancel_requested()), event_type, **about_node_a(event_type))
    assert state.cancel_requested_at == T0


@pytest.mark.spec("000 §5", "000 §3.14")
@pytest.mark.parametrize("name", ["StartNode", "RequestResumeNode", "ResumeNode"])
def test_commands_to_start_or_resume_are_refused_after_a_cancel_request(name: str) -> None:
    state = state_of(*cancel_requested(NodeStatus.WAITING))
    with pytest.raises(CommandRejected) as caught:
        handle(state, command(name, "a"), now=T0, new_id=Ids())
    assert caught.value.code is RejectionCode.CANCEL_REQUESTED


# --- Nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("000 §3.9")
@pytest.mark.parametrize(
    "node_type", ["Task", "Wait", "Fork", "Join", "Start", "Success", "Failed", "Canceled", "HumanReview"]
)
def test_a_created_node_is_idle_and_of_its_type(node_type: str) -> None:
    state = state_of(*created(), event("NODE_CREATED", nodeId="a", nodeType=node_type))
    assert (state.nodes["a"].status, state.nodes["a"].node_type) == (NodeStatus.IDLE, node_type)


@pytest.mark.spec("000 §3.10")
def test_a_node_becomes_ready() -> None:
    assert folded(state_of(*with_node(NodeStatus.IDLE)), "NODE_READY", nodeId="a").nodes["a"].status == "READY"


@pytest.mark.spec("000 §3.10")
@pytest.mark.parametrize("how", ENDS)
def test_nothing_becomes_ready_in_an_ended_execution(how: ExecutionStatus) -> None:
    before = state_of(*ended(how, NodeStatus.IDLE))
    assert folded(before, "NODE_READY", nodeId="a") == before


@pytest.mark.spec("000 §3.11")
def test_a_started_node_runs_its_attempt_on_its_worker() -> None:
    node = folded(state_of(*with_node(NodeStatus.READY)), "NODE_STARTED", nodeId="a", attempt=1, workerId="w").nodes[
        "a"
    ]
    assert (node.status, node.attempt, node.worker_id) == (NodeStatus.RUNNING, 1, "w")


@pytest.mark.spec("000 §3.11")
@pytest.mark.parametrize("status", OPEN_NODE)
def test_no_node_starts_after_a_cancel_request(status: NodeStatus) -> None:
    before = state_of(*cancel_requested(status))
    assert folded(before, "NODE_STARTED", nodeId="a", attempt=2, workerId="w2") == before


@pytest.mark.spec("000 §3.12")
@pytest.mark.parametrize("status", NodeStatus)
def test_progress_moves_no_status(status: NodeStatus) -> None:
    before = state_of(*with_node(status))
    after = folded(before, "NODE_PROGRESS_REPORTED", nodeId="a", progress=100, message="done", metrics={"rows": 3})
    assert statuses(after) == statuses(before)


@pytest.mark.spec("000 §3.13")
@pytest.mark.parametrize("prompt", [{}, {"title": "Approve?", "fields": [{"name": "ok", "required": None}]}])
def test_a_waiting_node_keeps_its_key_and_whatever_prompt_it_was_given(prompt: dict[str, Any]) -> None:
    before = state_of(*with_node(NodeStatus.RUNNING))
    node = folded(before, "NODE_WAITING", nodeId="a", waitKey="sign-off", prompt=prompt).nodes["a"]
    assert (node.status, node.wait_key, node.prompt) == (NodeStatus.WAITING, "sign-off", prompt)


@pytest.mark.spec("000 §3.14")
def test_a_request_to_resume_leaves_the_node_waiting() -> None:
    state = folded(state_of(*with_node(NodeStatus.WAITING)), "NODE_RESUME_REQUESTED", nodeId="a", resumeKey="key")
    assert state.nodes["a"].status is NodeStatus.WAITING


@pytest.mark.spec("000 §3.14")
def test_a_request_to_resume_changes_nothing_after_a_cancel_request() -> None:
    before = state_of(*cancel_requested(NodeStatus.WAITING))
    assert folded(before, "NODE_RESUME_REQUESTED", nodeId="a") == before


@pytest.mark.spec("000 §3.15")
def test_a_waiting_node_runs_again_when_resumed() -> None:
    state = folded(state_of(*with_node(NodeStatus.WAITING)), "NODE_RESUMED", nodeId="a")
    assert state.nodes["a"].status is NodeStatus.RUNNING


@pytest.mark.spec("000 §3.15")
@pytest.mark.parametrize("status", [status for status in NodeStatus if status is not NodeStatus.WAITING])
def test_only_a_waiting_node_can_be_resumed(status: NodeStatus) -> None:
    before = state_of(*with_node(status))
    assert folded(before, "NODE_RESUMED", nodeId="a") == before


@pytest.mark.spec("000 §3.16")
def test_a_success_keeps_its_output() -> None:
    node = folded(state_of(*with_node(NodeStatus.RUNNING)), "NODE_SUCCEEDED", nodeId="a", output={"x": 1}).nodes["a"]
    assert (node.status, node.output) == (NodeStatus.SUCCEEDED, {"x": 1})


@pytest.mark.parametrize(
    ("end", "status"),
    [
        pytest.param("NODE_SUCCEEDED", NodeStatus.SUCCEEDED, marks=pytest.mark.spec("000 §3.16")),
        pytest.param("NODE_FAILED", NodeStatus.FAILED, marks=pytest.mark.spec("000 §3.18")),
    ],
)
def test_work_that_ends_after_the_request_keeps_its_result_in_a_canceled_execution(
    end: str, status: NodeStatus
) -> None:
    state = state_of(*cancel_requested(), event(end, nodeId="a"), event(CANCELED))
    assert statuses(state) == (ExecutionStatus.CANCELED, {"a": status})


@pytest.mark.spec("000 §3.17")
@pytest.mark.parametrize("status", OPEN_NODE)
def test_a_reported_failure_is_kept_and_is_no_failure_yet(status: NodeStatus) -> None:
    node = folded(state_of(*with_node(status)), "NODE_FAIL_REPORTED", nodeId="a", error={"code": "E"}).nodes["a"]
    assert (node.status, node.error) == (status, {"code": "E"})


@pytest.mark.spec("000 §3.18")
def test_a_failure_keeps_its_error() -> None:
    node = folded(state_of(*with_node(NodeStatus.RUNNING)), "NODE_FAILED", nodeId="a", error={"code": "E"}).nodes["a"]
    assert (node.status, node.error) == (NodeStatus.FAILED, {"code": "E"})


@pytest.mark.spec("000 §3.19")
def test_a_request_to_cancel_one_node_does_not_cancel_the_execution() -> None:
    before = state_of(*with_node(NodeStatus.RUNNING))
    after = folded(before, "NODE_CANCEL_REQUESTED", nodeId="a", reason="too slow")
    assert statuses(after) == statuses(before)
    assert after.cancel_requested_at is None


@pytest.mark.spec("000 §3.20")
@pytest.mark.parametrize("status", NodeStatus)
def test_a_cancel_of_a_node_wins_over_any_status(status: NodeStatus) -> None:
    state = folded(state_of(*with_node(status)), "NODE_CANCELED", nodeId="a")
    assert state.nodes["a"].status is NodeStatus.CANCELED


@pytest.mark.spec("000 §3.20")
@pytest.mark.parametrize("event_type", PAYLOADS)
def test_a_canceled_node_stays_canceled(event_type: str) -> None:
    state = folded(state_of(*with_node(NodeStatus.CANCELED)), event_type, **about_node_a(event_type))
    assert state.nodes["a"].status is NodeStatus.CANCELED


@pytest.mark.spec("000 §3.21")
def test_a_request_to_stop_that_came_too_late_stays_on_record() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution")
    run.do("SucceedNode", "a", observed=True)
    assert run.status("a") is NodeStatus.SUCCEEDED
    assert [payload(found)["nodeId"] for found in run.log if found.type == "NODE_INTERRUPT_REQUESTED"] == ["a"]


# --- Forks and joins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event_type",
    [
        pytest.param(event_type, marks=pytest.mark.spec(PAYLOADS[event_type].section))
        for event_type in ("FORK_OPENED", "JOIN_GATE_UPDATED", "JOIN_PASSED")
    ],
)
@pytest.mark.parametrize("status", NodeStatus)
def test_marks_of_forks_and_joins_move_no_status(event_type: str, status: NodeStatus) -> None:
    before = state_of(*with_node(status))
    assert statuses(folded(before, event_type, **about_node_a(event_type))) == statuses(before)


@pytest.mark.spec("000 §3.23")
@pytest.mark.parametrize("passable", [True, False])
def test_a_cancel_wins_over_a_passable_gate(passable: bool) -> None:
    gate = about_node_a("JOIN_GATE_UPDATED") | {"isPassable": passable}
    log = [*cancel_requested(), event("JOIN_GATE_UPDATED", **gate), event("EXECUTION_COMPLETED"), event(CANCELED)]
    assert state_of(*log).status is ExecutionStatus.CANCELED


@pytest.mark.spec("000 §3.23")
def test_a_join_without_a_policy_needs_all_branches_to_succeed() -> None:
    run = Run(diamond("a", "b"))
    gate = next(found for found in run.succeed("a") if found.type == "JOIN_GATE_UPDATED")
    assert payload(gate)["policy"] == "ALL_SUCCESS"


# --- Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("000 §4")
@pytest.mark.parametrize("status", OPEN_NODE)
@pytest.mark.parametrize("event_type", REQUESTS + REPORTS)
def test_what_is_only_requested_or_reported_decides_no_status(event_type: str, status: NodeStatus) -> None:
    before = state_of(*with_node(status))
    assert statuses(folded(before, event_type, **about_node_a(event_type))) == statuses(before)


@pytest.mark.spec("000 §4")
@pytest.mark.parametrize(("event_type", "status"), DECIDES_NODE.items())
def test_an_event_of_a_change_decides_the_status(event_type: str, status: NodeStatus) -> None:
    state = folded(state_of(*with_node(NodeStatus.IDLE)), event_type, **about_node_a(event_type))
    assert state.nodes["a"].status is status


@pytest.mark.spec("000 §4")
def test_five_requests_and_two_reports_are_named_so() -> None:
    assert (len(REQUESTS), len(REPORTS)) == (5, 2)
    assert {*REQUESTS, *REPORTS} < {event_type.value for event_type in EventType}

"""Attempts: retries, workers that take over, workers that were replaced, and work that ended after a cancel."""

from typing import Any

import pytest

from pyoco_server.core import (
    CommandRejected,
    Event,
    ExecutionState,
    ExecutionStatus,
    NodeStatus,
    RejectionCode,
    fold,
    handle,
)
from tests.build import T0, Ids, Run, chain, command, event, graph, payload, state_of, types
from tests.core.states import cancel_requested, ended, with_node

REPORTS_OF_RUNNING = ["ReportNodeProgress", "PutNodeWaiting", "SucceedNode", "FailNode"]


def running(*, attempt: int = 1, retries: int = 0, worker: str = "w1") -> ExecutionState:
    """A node whose latest attempt is at work."""
    took_over = event("NODE_STARTED", nodeId="a", attempt=attempt, workerId=worker)
    return state_of(*with_node(NodeStatus.RUNNING, retries=retries), took_over)


def between_attempts() -> ExecutionState:
    """A node whose first of three attempts was reported failed."""
    return state_of(*with_node(NodeStatus.RUNNING, retries=2), event("NODE_FAIL_REPORTED", nodeId="a", attempt=1))


def answer(state: ExecutionState, name: str, *, observed: bool = False, **fields: Any) -> list[Event]:
    return handle(state, command(name, "a", **fields), now=T0, new_id=Ids(), observed=observed)


def refusal(state: ExecutionState, name: str, *, observed: bool = False, **fields: Any) -> RejectionCode:
    with pytest.raises(CommandRejected) as caught:
        answer(state, name, observed=observed, **fields)
    return caught.value.code


# --- Starting and taking over ----------------------------------------------------------------------------------------


@pytest.mark.spec("001 §4.6")
def test_the_first_attempt_is_number_one() -> None:
    (made,) = answer(state_of(*with_node(NodeStatus.READY)), "StartNode", workerId="w1")
    assert payload(made) == {"nodeId": "a", "attempt": 1, "workerId": "w1"}


@pytest.mark.spec("001 §4.6", "001 §6")
@pytest.mark.parametrize("fields", [{}, {"attempt": 1}, {"workerId": "w1"}, {"attempt": 1, "workerId": "w1"}], ids=str)
def test_the_worker_that_holds_the_attempt_may_start_it_again(fields: dict[str, Any]) -> None:
    assert answer(running(), "StartNode", **fields) == []


@pytest.mark.spec("001 §4.6")
@pytest.mark.parametrize("fields", [{}, {"attempt": 1}], ids=str)
def test_another_worker_cannot_have_the_same_attempt(fields: dict[str, Any]) -> None:
    assert refusal(running(), "StartNode", workerId="w2", **fields) is RejectionCode.NODE_HELD


@pytest.mark.spec("001 §4.6")
def test_another_worker_takes_over_with_a_higher_attempt() -> None:
    state = running()
    node = fold(answer(state, "StartNode", attempt=2, workerId="w2"), state).nodes["a"]
    assert (node.status, node.attempt, node.worker_id) == (NodeStatus.RUNNING, 2, "w2")


@pytest.mark.spec("001 §4.6")
def test_a_replaced_worker_cannot_take_its_attempt_back() -> None:
    assert refusal(running(attempt=2, worker="w2"), "StartNode", attempt=1) is RejectionCode.STALE_ATTEMPT


# --- Stale and unknown attempts --------------------------------------------------------------------------------------


@pytest.mark.spec("001 §4.7", "001 §4.8", "001 §4.11", "001 §4.12")
@pytest.mark.parametrize("name", REPORTS_OF_RUNNING)
@pytest.mark.parametrize(
    ("attempt", "code"), [(1, RejectionCode.STALE_ATTEMPT), (3, RejectionCode.UNKNOWN_ATTEMPT)], ids=["older", "newer"]
)
def test_a_report_of_any_but_the_latest_attempt_is_refused(name: str, attempt: int, code: RejectionCode) -> None:
    assert refusal(running(attempt=2), name, attempt=attempt) is code


@pytest.mark.spec("001 §4.7", "001 §4.8", "001 §4.11", "001 §4.12")
@pytest.mark.parametrize("name", REPORTS_OF_RUNNING)
@pytest.mark.parametrize("fields", [{}, {"attempt": 2}], ids=str)
def test_the_event_names_the_attempt_whether_or_not_the_command_did(name: str, fields: dict[str, Any]) -> None:
    assert {payload(made)["attempt"] for made in answer(running(attempt=2), name, **fields)} == {2}


@pytest.mark.spec("000 §3.11")
def test_an_older_start_does_not_take_the_node_back() -> None:
    before = running(attempt=2, worker="w2")
    assert fold([event("NODE_STARTED", nodeId="a", attempt=1, workerId="w1")], before) == before


@pytest.mark.spec("000 §3.12", "000 §3.13", "000 §3.16", "000 §3.17", "000 §3.18")
@pytest.mark.parametrize(
    "event_type",
    ["NODE_PROGRESS_REPORTED", "NODE_WAITING", "NODE_SUCCEEDED", "NODE_FAIL_REPORTED", "NODE_FAILED"],
)
def test_what_an_older_attempt_reports_changes_nothing(event_type: str) -> None:
    before = running(attempt=2)
    assert fold([event(event_type, nodeId="a", attempt=1)], before) == before


# --- Retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §4.12", "000 §3.17")
def test_a_failure_with_attempts_left_is_only_reported() -> None:
    state = running(retries=1)
    made = answer(state, "FailNode", error={"code": "E"})
    assert types(made) == ["NODE_FAIL_REPORTED"]
    assert fold(made, state).nodes["a"].status is NodeStatus.RUNNING


@pytest.mark.spec("001 §4.12")
def test_a_failure_of_the_last_attempt_fails_the_node() -> None:
    failed_twice = fold(
        [
            event("NODE_STARTED", nodeId="a", attempt=2),
            event("NODE_FAIL_REPORTED", nodeId="a", attempt=2),
            event("NODE_STARTED", nodeId="a", attempt=3),
        ],
        between_attempts(),
    )
    assert types(answer(failed_twice, "FailNode")) == ["NODE_FAIL_REPORTED", "NODE_FAILED"]


@pytest.mark.spec("001 §4.12")
def test_a_worker_that_took_over_does_not_use_up_a_retry() -> None:
    assert types(answer(running(attempt=2, retries=1), "FailNode")) == ["NODE_FAIL_REPORTED"]


@pytest.mark.spec("001 §4.12")
def test_a_waiting_node_that_fails_is_not_tried_again() -> None:
    waiting = state_of(*with_node(NodeStatus.WAITING, retries=2))
    assert types(answer(waiting, "FailNode")) == ["NODE_FAIL_REPORTED", "NODE_FAILED"]


@pytest.mark.spec("001 §4.12")
def test_failing_between_attempts_keeps_extra_fields_of_the_command() -> None:
    (made,) = answer(between_attempts(), "FailNode", retryable=False, note="gave up")
    assert (made.type, payload(made)["note"]) == ("NODE_FAILED", "gave up")


@pytest.mark.spec("001 §4.12")
def test_a_failure_that_is_not_retryable_fails_the_node_at_once() -> None:
    assert types(answer(running(retries=1), "FailNode", retryable=False)) == ["NODE_FAIL_REPORTED", "NODE_FAILED"]


@pytest.mark.spec("001 §4.12", "001 §6")
def test_the_same_failure_is_not_recorded_twice() -> None:
    assert answer(between_attempts(), "FailNode", attempt=1) == []


@pytest.mark.spec("001 §4.12")
def test_a_node_between_attempts_can_be_failed() -> None:
    assert types(answer(between_attempts(), "FailNode", retryable=False)) == ["NODE_FAILED"]


@pytest.mark.spec("001 §4.7", "001 §4.8", "001 §4.11")
@pytest.mark.parametrize("name", ["ReportNodeProgress", "PutNodeWaiting", "SucceedNode"])
def test_a_report_of_a_failed_attempt_is_refused(name: str) -> None:
    assert refusal(between_attempts(), name, attempt=1) is RejectionCode.BETWEEN_ATTEMPTS


@pytest.mark.spec("001 §4.6")
def test_a_failed_attempt_cannot_be_started_again() -> None:
    assert refusal(between_attempts(), "StartNode", attempt=1) is RejectionCode.BETWEEN_ATTEMPTS


@pytest.mark.spec("001 §4.6")
@pytest.mark.parametrize("fields", [{}, {"attempt": 2}], ids=str)
def test_after_a_failed_attempt_the_next_one_starts(fields: dict[str, Any]) -> None:
    (made,) = answer(between_attempts(), "StartNode", workerId="w2", **fields)
    assert payload(made) == {"nodeId": "a", "attempt": 2, "workerId": "w2"}


@pytest.mark.spec("001 §4.12", "001 §4.11")
def test_a_node_succeeds_at_its_second_attempt() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"retries": 1}))
    run.fail("a")
    run.succeed("a")
    assert (run.status("a"), run.state.nodes["a"].attempt) == (NodeStatus.SUCCEEDED, 2)
    assert run.state.status is ExecutionStatus.COMPLETED


@pytest.mark.spec("001 §4.12")
def test_the_execution_fails_only_with_the_last_attempt() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"retries": 1}))
    run.fail("a")
    assert run.state.status is ExecutionStatus.ACTIVE
    run.fail("a")
    assert (run.status("a"), run.state.status) == (NodeStatus.FAILED, ExecutionStatus.FAILED)


# --- Waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §4.10")
@pytest.mark.parametrize("fields", [{}, {"resumeKey": "key"}], ids=str)
def test_a_waiting_node_is_resumed_by_its_key_or_by_none(fields: dict[str, Any]) -> None:
    assert types(answer(state_of(*with_node(NodeStatus.WAITING)), "ResumeNode", **fields)) == ["NODE_RESUMED"]


@pytest.mark.spec("001 §4.10")
@pytest.mark.parametrize("key", ["other", "", "KEY"])
def test_another_key_does_not_resume_the_node(key: str) -> None:
    state = state_of(*with_node(NodeStatus.WAITING))
    assert refusal(state, "ResumeNode", resumeKey=key) is RejectionCode.RESUME_KEY_MISMATCH


@pytest.mark.spec("001 §4.10")
def test_a_node_that_waits_without_a_key_refuses_any_key() -> None:
    state = state_of(*with_node(NodeStatus.RUNNING), event("NODE_WAITING", nodeId="a"))
    assert refusal(state, "ResumeNode", resumeKey="key") is RejectionCode.RESUME_KEY_MISMATCH


@pytest.mark.spec("001 §4.10", "001 §4.11")
def test_a_resumed_node_continues_its_attempt() -> None:
    state = state_of(*with_node(NodeStatus.WAITING))
    resumed = fold(answer(state, "ResumeNode"), state)
    assert [payload(made)["attempt"] for made in answer(resumed, "SucceedNode", attempt=1)] == [1]


@pytest.mark.spec("001 §4.9", "001 §4.10")
def test_a_request_to_resume_still_needs_the_resume() -> None:
    state = state_of(*with_node(NodeStatus.WAITING))
    requested = fold(answer(state, "RequestResumeNode"), state)
    assert types(answer(requested, "ResumeNode")) == ["NODE_RESUMED"]


# --- What the engine itself saw end ----------------------------------------------------------------------------------


@pytest.mark.spec("001 §3.2")
@pytest.mark.parametrize(
    ("name", "recorded"),
    [("SucceedNode", ["NODE_SUCCEEDED"]), ("FailNode", ["NODE_FAIL_REPORTED", "NODE_FAILED"])],
)
def test_observed_end_of_work_after_a_cancel_request_is_recorded(name: str, recorded: list[str]) -> None:
    assert types(answer(state_of(*cancel_requested()), name, observed=True)) == recorded


@pytest.mark.spec("001 §3.2")
@pytest.mark.parametrize("name", ["MarkNodeReady", "StartNode", "ReportNodeProgress", "PutNodeWaiting", "ResumeNode"])
def test_observed_does_not_allow_other_commands_after_a_cancel_request(name: str) -> None:
    assert refusal(state_of(*cancel_requested()), name, observed=True) is RejectionCode.CANCEL_REQUESTED


@pytest.mark.spec("001 §3.1")
@pytest.mark.parametrize("how", [ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELED])
def test_observed_end_of_work_after_the_end_is_refused(how: ExecutionStatus) -> None:
    assert refusal(state_of(*ended(how)), "SucceedNode", observed=True) is RejectionCode.EXECUTION_TERMINAL


@pytest.mark.spec("001 §3.2")
def test_a_report_of_a_replaced_worker_is_refused_after_a_cancel_request_too() -> None:
    state = fold([event("EXECUTION_CANCEL_REQUESTED")], running(attempt=2))
    assert refusal(state, "SucceedNode", observed=True, attempt=1) is RejectionCode.STALE_ATTEMPT


@pytest.mark.spec("001 §3.2", "001 §4.12")
def test_after_a_cancel_request_a_failure_is_not_tried_again() -> None:
    state = fold([event("EXECUTION_CANCEL_REQUESTED")], running(retries=3))
    assert types(answer(state, "FailNode", observed=True)) == ["NODE_FAIL_REPORTED", "NODE_FAILED"]


@pytest.mark.spec("001 §7")
@pytest.mark.parametrize(("name", "status"), [("SucceedNode", "SUCCEEDED"), ("FailNode", "FAILED")])
def test_observed_success_does_not_keep_the_execution_from_ending_canceled(name: str, status: str) -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution")
    run.do(name, "a", observed=True)
    assert (run.status("a"), run.state.status) == (status, ExecutionStatus.CANCELED)
    assert run.state.nodes["a"].cancellation_applied


# --- Stale resumes ---------------------------------------------------------------------------------------------------


def waiting_in_second_attempt() -> ExecutionState:
    return fold([event("NODE_WAITING", nodeId="a", attempt=2)], running(attempt=2))


@pytest.mark.spec("001 §4.9", "001 §4.10")
@pytest.mark.parametrize("name", ["RequestResumeNode", "ResumeNode"])
def test_a_replaced_attempt_cannot_be_resumed(name: str) -> None:
    assert refusal(waiting_in_second_attempt(), name, attempt=1) is RejectionCode.STALE_ATTEMPT


@pytest.mark.spec("000 §3.14", "000 §3.15", "000 §3.19", "000 §3.20", "000 §3.21")
@pytest.mark.parametrize(
    "event_type",
    [
        "NODE_RESUMED",
        "NODE_RESUME_REQUESTED",
        "NODE_CANCELED",
        "NODE_INTERRUPT_REQUESTED",
        "NODE_CANCEL_REQUESTED",
    ],
)
def test_an_event_of_a_replaced_attempt_changes_nothing(event_type: str) -> None:
    before = waiting_in_second_attempt()
    assert fold([event(event_type, nodeId="a", attempt=1)], before) is before

"""The reducer, event by event."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from pyoco_server.core import Event, EventType, ExecutionState, ExecutionStatus, NodeStatus, reduce
from pyoco_server.core.node_reducers import NODE_EVENT_STEPS
from pyoco_server.core.reducer import _APPLY
from tests.build import T0, event, state_of

LATER = T0 + timedelta(minutes=1)
CREATED = event("EXECUTION_CREATED", graphId="g")
NODE = event("NODE_CREATED", nodeId="a", nodeType="Task")
ERROR = {"code": "E", "message": "broke"}
NODE_STATUSES = list(NodeStatus)
RANKED = ["IDLE", "READY", "RUNNING", "WAITING", "SUCCEEDED", "FAILED", "CANCELED"]
INTO: dict[str, tuple[str, dict[str, Any]] | None] = {
    "IDLE": None,
    "READY": ("NODE_READY", {}),
    "RUNNING": ("NODE_STARTED", {"attempt": 1}),
    "WAITING": ("NODE_WAITING", {}),
    "SUCCEEDED": ("NODE_SUCCEEDED", {}),
    "FAILED": ("NODE_FAILED", {}),
    "CANCELED": ("NODE_CANCELED", {}),
}
GATE: dict[str, Any] = {
    "expectedBranches": ["a", "b"],
    "completedBranches": ["a"],
    "failedBranches": [],
    "canceledBranches": [],
    "policy": "ALL_SUCCESS",
    "isPassable": False,
}


def node_in(status: str) -> ExecutionState:
    """An execution whose node *a* has this status."""
    step = INTO[status]
    return state_of(CREATED, NODE) if step is None else state_of(CREATED, NODE, event(step[0], nodeId="a", **step[1]))


def about_node(name: str, **fields: Any) -> Event:
    return event(name, nodeId="a", **fields)


# --- Execution -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §6 EXECUTION_CREATED")
def test_created_takes_the_graph_and_is_active() -> None:
    state = state_of(CREATED)
    assert (state.graph_id, state.status) == ("g", ExecutionStatus.ACTIVE)


@pytest.mark.spec("002 §6 EXECUTION_STARTED")
@pytest.mark.parametrize("ending", ["EXECUTION_COMPLETED", "EXECUTION_FAILED", "EXECUTION_CANCELED"])
def test_started_does_not_revive_an_ended_execution(ending: str) -> None:
    ended = state_of(CREATED, event(ending))
    assert reduce(ended, event("EXECUTION_STARTED")).status is ended.status


@pytest.mark.spec("002 §6 EXECUTION_STARTED")
def test_started_execution_stays_active() -> None:
    assert state_of(CREATED, event("EXECUTION_STARTED")).status is ExecutionStatus.ACTIVE


@pytest.mark.parametrize(
    ("name", "field"),
    [
        pytest.param(
            "EXECUTION_CANCEL_REQUESTED",
            "cancel_requested_at",
            marks=pytest.mark.spec("002 §6 EXECUTION_CANCEL_REQUESTED", "002 §9.4"),
        ),
        pytest.param("EXECUTION_CANCELED", "canceled_at", marks=pytest.mark.spec("002 §6 EXECUTION_CANCELED")),
        pytest.param("EXECUTION_FAILED", "failed_at", marks=pytest.mark.spec("002 §6 EXECUTION_FAILED")),
        pytest.param("EXECUTION_COMPLETED", "completed_at", marks=pytest.mark.spec("002 §6 EXECUTION_COMPLETED")),
        ("EXECUTION_STARTED", "started_at"),
        ("EXECUTION_ARCHIVED", "archived_at"),
        ("EXECUTION_CREATED", "created_at"),
    ],
)
def test_first_time_is_kept(name: str, field: str) -> None:
    fields = {"graphId": "g"} if name == "EXECUTION_CREATED" else {}
    once = state_of(event(name, at=T0, **fields))
    assert getattr(once, field) == T0
    assert reduce(once, event(name, at=LATER, **fields)) is once


@pytest.mark.spec("002 §6 EXECUTION_CANCEL_REQUESTED", "002 §4.2", "003 §5.1")
def test_cancel_request_leaves_the_execution_active() -> None:
    state = state_of(CREATED, event("EXECUTION_CANCEL_REQUESTED", reason="enough"))
    assert (state.status, state.is_cancel_requested, state.canceled_at) == (ExecutionStatus.ACTIVE, True, None)
    assert state.cancel_reason == "enough"


@pytest.mark.spec("002 §4.2")
def test_cancel_counts_as_requested_only_after_the_request() -> None:
    assert not state_of(CREATED).is_cancel_requested


ENDINGS = {"EXECUTION_COMPLETED": "COMPLETED", "EXECUTION_FAILED": "FAILED", "EXECUTION_CANCELED": "CANCELED"}
ENDING_ROWS = [
    pytest.param(name, marks=pytest.mark.spec(f"002 §6 {name}", "003 §6.1", "003 §12.2")) for name in ENDINGS
]


@pytest.mark.parametrize("second", ENDINGS)
@pytest.mark.parametrize("first", ENDING_ROWS)
def test_two_ends_are_settled_by_rank(first: str, second: str) -> None:
    ranked = ["COMPLETED", "FAILED", "CANCELED"]
    strongest = max(ENDINGS[first], ENDINGS[second], key=ranked.index)
    assert state_of(CREATED, event(first), event(second)).status == strongest


@pytest.mark.spec("002 §6 EXECUTION_ARCHIVED")
@pytest.mark.parametrize("ending", ENDINGS)
def test_archiving_leaves_the_status(ending: str) -> None:
    ended = state_of(CREATED, event(ending))
    archived = reduce(ended, event("EXECUTION_ARCHIVED"))
    assert msgspec.structs.replace(archived, archived_at=None, version=ended.version) == ended


def test_asking_for_a_failure_is_a_record_only() -> None:
    before = state_of(CREATED)
    after = reduce(before, event("EXECUTION_FAIL_REQUESTED", reason="quota"))
    assert msgspec.structs.replace(after, version=before.version) == before


# --- Nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §6 NODE_CREATED", "002 §2 NodeState")
def test_created_node_is_idle_and_was_never_tried() -> None:
    node = state_of(CREATED, NODE).nodes["a"]
    assert (node.node_id, node.node_type, node.status, node.attempt) == ("a", "Task", NodeStatus.IDLE, 0)
    assert (node.worker_id, node.wait_key, node.output, node.error) == (None, None, None, None)


@pytest.mark.spec("002 §6 NODE_CREATED")
def test_node_is_created_once() -> None:
    running = node_in("RUNNING")
    assert reduce(running, event("NODE_CREATED", nodeId="a", nodeType="Wait")) is running


@pytest.mark.spec("002 §6 NODE_CREATED")
def test_meta_of_another_program_is_accepted() -> None:
    state = state_of(CREATED, event("NODE_CREATED", nodeId="a", nodeType="Task", meta={"inputs": "many"}))
    assert (state.nodes["a"].inputs, state.nodes["a"].edges) == (0, ())


MOVES = {name: (status, fields) for status, step in INTO.items() if step for name, fields in [step]}
MOVE_ROWS = [
    pytest.param(name, status, fields, marks=pytest.mark.spec(f"002 §6 {name}", "002 §7"), id=name)
    for name, (status, fields) in MOVES.items()
]


@pytest.mark.parametrize("current", RANKED)
@pytest.mark.parametrize(("name", "proposed", "fields"), MOVE_ROWS)
def test_node_events_go_by_rank(name: str, proposed: str, fields: dict[str, Any], current: str) -> None:
    after = reduce(node_in(current), about_node(name, **fields))
    assert after.nodes["a"].status == max(current, proposed, key=RANKED.index)


@pytest.mark.spec("002 §6 NODE_RESUMED", "002 §9.2", "003 §8.2")
def test_resumed_takes_a_waiting_node_back_to_running() -> None:
    assert reduce(node_in("WAITING"), about_node("NODE_RESUMED")).nodes["a"].status is NodeStatus.RUNNING


@pytest.mark.spec("002 §6 NODE_RESUMED", "003 §8.2")
@pytest.mark.parametrize("current", [status for status in RANKED if status != "WAITING"])
def test_resumed_means_nothing_to_a_node_that_does_not_wait(current: str) -> None:
    before = node_in(current)
    assert reduce(before, about_node("NODE_RESUMED")) is before


@pytest.mark.spec("002 §6 NODE_STARTED")
@pytest.mark.parametrize("current", RANKED)
def test_started_keeps_the_highest_attempt_and_the_last_worker(current: str) -> None:
    state = node_in(current)
    for attempt, worker in ((2, "w2"), (3, None), (1, "w1")):
        named = {} if worker is None else {"workerId": worker}
        state = reduce(state, about_node("NODE_STARTED", attempt=attempt, **named))
    assert (state.nodes["a"].attempt, state.nodes["a"].worker_id) == (3, "w2")


KEPT = [
    pytest.param(
        "NODE_WAITING", "waitKey", "wait_key", "k1", "k2", marks=pytest.mark.spec("002 §6 NODE_WAITING", "003 §8.1")
    ),
    pytest.param(
        "NODE_SUCCEEDED", "output", "output", {"n": 1}, {"n": 2}, marks=pytest.mark.spec("002 §6 NODE_SUCCEEDED")
    ),
    pytest.param("NODE_FAILED", "error", "error", ERROR, {"code": "F"}, marks=pytest.mark.spec("002 §6 NODE_FAILED")),
    pytest.param(
        "NODE_FAIL_REPORTED",
        "error",
        "error",
        ERROR,
        {"code": "F"},
        marks=pytest.mark.spec("002 §6 NODE_FAIL_REPORTED"),
    ),
    ("NODE_PROGRESS_REPORTED", "progress", "progress", 10, 20),
    ("NODE_PROGRESS_REPORTED", "message", "progress_message", "one", "two"),
]


@pytest.mark.parametrize(("name", "wire", "field", "first", "second"), KEPT)
def test_last_value_given_is_kept(name: str, wire: str, field: str, first: object, second: object) -> None:
    state = node_in("RUNNING")
    for given, expected in (({}, None), ({wire: first}, first), ({}, first), ({wire: second}, second)):
        state = reduce(state, about_node(name, **given))
        assert getattr(state.nodes["a"], field) == expected


@pytest.mark.spec("002 §6 NODE_SUCCEEDED")
def test_output_of_a_canceled_node_is_kept_though_its_status_stands() -> None:
    node = reduce(node_in("CANCELED"), about_node("NODE_SUCCEEDED", output={"n": 1})).nodes["a"]
    assert (node.status, node.output) == (NodeStatus.CANCELED, {"n": 1})


STATUS_LEFT_ALONE = [
    "NODE_PROGRESS_REPORTED",
    "NODE_RESUME_REQUESTED",
    "NODE_FAIL_REPORTED",
    "NODE_CANCEL_REQUESTED",
    "NODE_INTERRUPT_REQUESTED",
]


@pytest.mark.parametrize("current", RANKED)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.spec(f"002 §6 {name}")) for name in STATUS_LEFT_ALONE]
)
def test_requests_and_reports_leave_the_status(name: str, current: str) -> None:
    before = node_in(current)
    after = reduce(before, about_node(name))
    assert after.nodes["a"].status == current
    assert after.status is before.status


@pytest.mark.spec("002 §6 NODE_RESUME_REQUESTED", "002 §6 NODE_CANCEL_REQUESTED")
@pytest.mark.parametrize("name", ["NODE_RESUME_REQUESTED", "NODE_CANCEL_REQUESTED"])
def test_request_leaves_all_nodes_untouched(name: str) -> None:
    before = node_in("WAITING")
    assert reduce(before, about_node(name)).nodes == before.nodes


# --- Forks and joins -------------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §6 FORK_OPENED")
def test_fork_opened_changes_no_node() -> None:
    before = node_in("RUNNING")
    after = reduce(before, about_node("FORK_OPENED", branchIds=["b", "c"]))
    assert (after.nodes, after.status) == (before.nodes, before.status)


@pytest.mark.spec("002 §6 JOIN_GATE_UPDATED")
def test_last_gate_is_kept_and_no_node_changes() -> None:
    before = node_in("IDLE")
    after = reduce(
        reduce(before, about_node("JOIN_GATE_UPDATED", **GATE)),
        about_node("JOIN_GATE_UPDATED", **GATE | {"isPassable": True}),
    )
    gate = after.join_gates["a"]
    assert (gate.expected_branches, gate.completed_branches, gate.is_passable) == (("a", "b"), ("a",), True)
    assert (after.nodes, after.status) == (before.nodes, before.status)


@pytest.mark.spec("002 §6 JOIN_PASSED")
def test_join_passed_changes_no_node() -> None:
    before = node_in("READY")
    after = reduce(before, about_node("JOIN_PASSED"))
    assert (after.nodes, after.status) == (before.nodes, before.status)
    assert after.join_gates["a"].passed


@pytest.mark.spec("002 §6 JOIN_GATE_UPDATED", "002 §6 JOIN_PASSED")
def test_passed_join_stays_passed_when_its_gate_is_updated() -> None:
    state = reduce(node_in("READY"), about_node("JOIN_PASSED"))
    assert reduce(state, about_node("JOIN_GATE_UPDATED", **GATE)).join_gates["a"].passed


def test_every_event_type_has_a_rule() -> None:
    assert sorted(payload.type for payload in (*_APPLY, *NODE_EVENT_STEPS)) == sorted(EventType)

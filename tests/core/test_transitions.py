"""The tables that decide every status."""

import itertools

import pytest

from pyoco_server.core import (
    EventType,
    ExecutionStatus,
    NodeStatus,
    choose_exec_status,
    choose_node_status,
    exec_rank,
    node_rank,
)
from pyoco_server.core.transitions import (
    EXECUTION_PROPOSALS,
    EXECUTION_STEPS,
    IGNORED_AFTER_CANCEL,
    LIVE_NODE,
    NODE_PROPOSALS,
    NODE_STEPS,
    STEPS_DOWN,
    TERMINAL_EXECUTION,
    TERMINAL_NODE,
)

EXECUTION_ORDER = ("ACTIVE", "COMPLETED", "FAILED", "CANCELED")
NODE_ORDER = ("IDLE", "READY", "RUNNING", "WAITING", "SUCCEEDED", "FAILED", "CANCELED")
EXECUTION_PAIRS = list(itertools.product(EXECUTION_ORDER, repeat=2))
NODE_PAIRS = list(itertools.product(NODE_ORDER, repeat=2))


@pytest.mark.spec("002 §2 ExecutionStatus", "003 §3.1")
def test_execution_has_four_statuses() -> None:
    assert {status.value for status in ExecutionStatus} == set(EXECUTION_ORDER)


@pytest.mark.spec("002 §2 NodeStatus", "003 §3.2")
def test_node_has_seven_statuses() -> None:
    assert {status.value for status in NodeStatus} == set(NODE_ORDER)


@pytest.mark.spec("002 §3.1")
@pytest.mark.parametrize(("status", "rank"), [("CANCELED", 400), ("FAILED", 300), ("COMPLETED", 200), ("ACTIVE", 100)])
def test_rank_of_execution_status(status: str, rank: int) -> None:
    assert exec_rank(ExecutionStatus(status)) == rank


@pytest.mark.spec("002 §3.2")
@pytest.mark.parametrize(
    ("status", "rank"),
    [
        ("CANCELED", 700),
        ("FAILED", 600),
        ("SUCCEEDED", 500),
        ("WAITING", 400),
        ("RUNNING", 300),
        ("READY", 200),
        ("IDLE", 100),
    ],
)
def test_rank_of_node_status(status: str, rank: int) -> None:
    assert node_rank(NodeStatus(status)) == rank


@pytest.mark.spec("003 §3.1")
def test_execution_statuses_are_ordered_by_rank() -> None:
    assert tuple(sorted(ExecutionStatus, key=exec_rank)) == EXECUTION_ORDER


@pytest.mark.spec("003 §3.2")
def test_node_statuses_are_ordered_by_rank() -> None:
    assert tuple(sorted(NodeStatus, key=node_rank)) == NODE_ORDER


@pytest.mark.spec("002 §3.1", "003 §12.2")
@pytest.mark.parametrize(("current", "candidate"), EXECUTION_PAIRS)
def test_stronger_execution_status_is_chosen(current: str, candidate: str) -> None:
    stronger = EXECUTION_ORDER[max(EXECUTION_ORDER.index(current), EXECUTION_ORDER.index(candidate))]
    assert choose_exec_status(ExecutionStatus(current), ExecutionStatus(candidate)) == stronger


@pytest.mark.spec("002 §3.2", "003 §12.2")
@pytest.mark.parametrize(("current", "candidate"), NODE_PAIRS)
def test_stronger_node_status_is_chosen(current: str, candidate: str) -> None:
    stronger = NODE_ORDER[max(NODE_ORDER.index(current), NODE_ORDER.index(candidate))]
    assert choose_node_status(NodeStatus(current), NodeStatus(candidate)) == stronger


@pytest.mark.spec("002 §4.1")
@pytest.mark.parametrize(
    ("status", "final"), [("ACTIVE", False), ("COMPLETED", True), ("FAILED", True), ("CANCELED", True)]
)
def test_final_execution_statuses(status: str, final: bool) -> None:
    assert (ExecutionStatus(status) in TERMINAL_EXECUTION) is final


def test_every_node_status_is_idle_live_or_final() -> None:
    assert {NodeStatus.IDLE} | LIVE_NODE | TERMINAL_NODE == set(NodeStatus)
    assert not LIVE_NODE & TERMINAL_NODE


@pytest.mark.spec("002 §4.3")
def test_events_without_effect_after_a_cancel_request() -> None:
    assert set(IGNORED_AFTER_CANCEL) == {
        "NODE_READY",
        "NODE_STARTED",
        "NODE_PROGRESS_REPORTED",
        "NODE_WAITING",
        "NODE_RESUME_REQUESTED",
        "NODE_RESUMED",
        "JOIN_PASSED",
        "JOIN_GATE_UPDATED",
        "FORK_OPENED",
        "EXECUTION_COMPLETED",
        "EXECUTION_FAILED",
    }


def test_resuming_is_the_only_step_down() -> None:
    assert STEPS_DOWN == {("WAITING", "NODE_RESUMED"): "RUNNING"}


EXECUTION_STEP_TABLE = {
    "ACTIVE": {
        "EXECUTION_CANCELED": "CANCELED",
        "EXECUTION_FAILED": "FAILED",
        "EXECUTION_COMPLETED": "COMPLETED",
    },
    "COMPLETED": {},
    "FAILED": {},
    "CANCELED": {},
}


@pytest.mark.spec("003 §6.1")
@pytest.mark.parametrize(("status", "steps"), EXECUTION_STEP_TABLE.items())
def test_steps_of_an_execution(status: str, steps: dict[str, str]) -> None:
    assert EXECUTION_STEPS[ExecutionStatus(status)] == steps


NODE_STEP_TARGETS = {
    "IDLE": {"READY", "CANCELED"},
    "READY": {"RUNNING", "CANCELED"},
    "RUNNING": {"RUNNING", "SUCCEEDED", "FAILED", "WAITING", "CANCELED"},
    "WAITING": {"RUNNING", "FAILED", "CANCELED"},
    "SUCCEEDED": set[str](),
    "FAILED": set[str](),
    "CANCELED": set[str](),
}


@pytest.mark.spec("003 §6.2")
@pytest.mark.parametrize(("status", "targets"), NODE_STEP_TARGETS.items())
def test_steps_of_a_node(status: str, targets: set[str]) -> None:
    assert set(NODE_STEPS[NodeStatus(status)].values()) == targets


@pytest.mark.spec("003 §6.2")
def test_waiting_node_runs_again_only_by_a_resume() -> None:
    into_running = [name for name, target in NODE_STEPS[NodeStatus.WAITING].items() if target is NodeStatus.RUNNING]
    assert into_running == [EventType.NODE_RESUMED]


@pytest.mark.parametrize("status", NodeStatus)
def test_node_steps_agree_with_the_choice_function(status: NodeStatus) -> None:
    for name, target in NODE_STEPS[status].items():
        step_down = STEPS_DOWN.get((status, name))
        proposed = choose_node_status(status, NODE_PROPOSALS[name]) if step_down is None else step_down
        assert proposed is target


@pytest.mark.parametrize("status", ExecutionStatus)
def test_execution_steps_agree_with_the_choice_function(status: ExecutionStatus) -> None:
    for name, target in EXECUTION_STEPS[status].items():
        assert choose_exec_status(status, EXECUTION_PROPOSALS[name]) is target

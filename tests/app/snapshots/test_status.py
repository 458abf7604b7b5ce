"""The platform's words for the core's statuses, both ways: the table of the design, row by row."""

from datetime import UTC, datetime

import pytest

from pyoco_server.app.snapshots.status import (
    TERMINAL_RUN,
    RunStatus,
    TaskStatus,
    execution_statuses,
    node_statuses,
    run_status,
    task_status,
)
from pyoco_server.core import ExecutionState, ExecutionStatus, NodeStatus

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "started", "cancel_requested", "word"),
    [
        (ExecutionStatus.ACTIVE, False, False, RunStatus.PENDING),
        (ExecutionStatus.ACTIVE, True, False, RunStatus.RUNNING),
        (ExecutionStatus.ACTIVE, False, True, RunStatus.CANCELLING),
        (ExecutionStatus.ACTIVE, True, True, RunStatus.CANCELLING),
        (ExecutionStatus.COMPLETED, True, False, RunStatus.COMPLETED),
        (ExecutionStatus.FAILED, True, False, RunStatus.FAILED),
        (ExecutionStatus.FAILED, False, False, RunStatus.FAILED),
        (ExecutionStatus.CANCELED, True, True, RunStatus.CANCELLED),
        (ExecutionStatus.CANCELED, False, True, RunStatus.CANCELLED),
    ],
)
def test_how_a_run_stands(status: ExecutionStatus, started: bool, cancel_requested: bool, word: RunStatus) -> None:
    state = ExecutionState(
        execution_id="run-1",
        graph_id="g",
        status=status,
        started_at=NOW if started else None,
        cancel_requested_at=NOW if cancel_requested else None,
    )
    assert run_status(state) is word
    assert status in execution_statuses(word)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (NodeStatus.IDLE, TaskStatus.PENDING),
        (NodeStatus.READY, TaskStatus.PENDING),
        (NodeStatus.RUNNING, TaskStatus.RUNNING),
        (NodeStatus.WAITING, TaskStatus.RUNNING),
        (NodeStatus.SUCCEEDED, TaskStatus.SUCCEEDED),
        (NodeStatus.FAILED, TaskStatus.FAILED),
        (NodeStatus.CANCELED, TaskStatus.CANCELLED),
    ],
)
def test_how_a_task_stands(status: NodeStatus, word: TaskStatus) -> None:
    assert task_status(status) is word
    assert status in node_statuses(word)


def test_every_status_of_a_node_has_exactly_one_word() -> None:
    found = [status for word in TaskStatus for status in node_statuses(word)]
    assert sorted(found) == sorted(NodeStatus)


def test_every_word_for_a_run_has_its_statuses() -> None:
    assert {word: set(execution_statuses(word)) for word in RunStatus} == {
        RunStatus.PENDING: {ExecutionStatus.ACTIVE},
        RunStatus.RUNNING: {ExecutionStatus.ACTIVE},
        RunStatus.CANCELLING: {ExecutionStatus.ACTIVE},
        RunStatus.COMPLETED: {ExecutionStatus.COMPLETED},
        RunStatus.FAILED: {ExecutionStatus.FAILED},
        RunStatus.CANCELLED: {ExecutionStatus.CANCELED},
    }


def test_what_is_the_end_for_one_is_the_end_for_the_other() -> None:
    for word in RunStatus:
        for status in execution_statuses(word):
            assert ExecutionState(execution_id="run-1", status=status).is_terminal == (word in TERMINAL_RUN)


def test_the_words_are_those_of_the_specification() -> None:
    assert [*RunStatus] == ["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLING", "CANCELLED"]
    assert [*TaskStatus] == ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]

"""Maps the statuses of runs and tasks to those of executions and nodes, and answers what both mean for a run.

No other module maps them, or decides whether a run is parked or has an owner.
"""

from enum import StrEnum, unique
from typing import Final

from pyoco_server.app.snapshots.codec import number
from pyoco_server.core import CancelMode, ExecutionState, ExecutionStatus, NodeStatus
from pyoco_server.core.graph import NodeType
from pyoco_server.core.json_codec import JsonObject


@unique
class RunStatus(StrEnum):
    """The status of a run."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"


@unique
class TaskStatus(StrEnum):
    """The status of a task."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL_RUN: Final = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})

NOT_ACCEPTED: Final = "the submission was not accepted"
"""The reason of the cancel that retracts a submission."""

_ENDS: Final = {
    ExecutionStatus.COMPLETED: RunStatus.COMPLETED,
    ExecutionStatus.FAILED: RunStatus.FAILED,
    ExecutionStatus.CANCELED: RunStatus.CANCELLED,
}

_TASKS: Final = {
    NodeStatus.IDLE: TaskStatus.PENDING,
    NodeStatus.READY: TaskStatus.PENDING,
    NodeStatus.RUNNING: TaskStatus.RUNNING,
    NodeStatus.WAITING: TaskStatus.RUNNING,
    NodeStatus.SUCCEEDED: TaskStatus.SUCCEEDED,
    NodeStatus.FAILED: TaskStatus.FAILED,
    NodeStatus.CANCELED: TaskStatus.CANCELLED,
}


def was_retracted(state: ExecutionState) -> bool:
    """Return whether the run was retracted: then nothing of it may be shown."""
    return state.is_terminal and state.cancel_reason == NOT_ACCEPTED


def run_status(state: ExecutionState) -> RunStatus:
    """Return the run status of an execution."""
    if state.status in _ENDS:
        return _ENDS[state.status]
    if state.is_cancel_requested:
        return RunStatus.CANCELLING
    return RunStatus.PENDING if state.started_at is None else RunStatus.RUNNING


def task_status(status: NodeStatus) -> TaskStatus:
    """Return the task status of a node."""
    return _TASKS[status]


def execution_statuses(status: RunStatus) -> frozenset[ExecutionStatus]:
    """Return the execution statuses that a run of this status can have."""
    ended = frozenset(core for core, platform in _ENDS.items() if platform is status)
    return ended or frozenset({ExecutionStatus.ACTIVE})


def ended_status(status: RunStatus) -> ExecutionStatus:
    """Return the execution status of a terminal run status."""
    return next(core for core, platform in _ENDS.items() if platform is status)


def cancel_mode(state: ExecutionState) -> CancelMode:
    """Return whether a cancel waits for workers: only for running tasks; blocks and waits have nothing to stop."""
    at_work = any(
        node.is_at_work and node.node_type == NodeType.TASK and node.status is NodeStatus.RUNNING
        for node in state.live_nodes()
    )
    return CancelMode.WAIT_FOR_WORKERS if at_work else CancelMode.IMMEDIATE


def is_parked(state: ExecutionState) -> bool:
    """Does the run only wait to be resumed?"""
    live = state.live_nodes()
    return bool(live) and all(node.status is NodeStatus.WAITING for node in live)


def has_owner(snapshot: JsonObject, *, now: float, fresh_sec: float) -> bool:
    """Does a process drive the run, by what its snapshot says and how old its heartbeat is?"""
    return snapshot.get("driven_by") is not None and now - (number(snapshot.get("heartbeat_at")) or 0.0) < fresh_sec


def node_statuses(status: TaskStatus) -> frozenset[NodeStatus]:
    """Return the node statuses that a task of this status can have."""
    return frozenset(core for core, platform in _TASKS.items() if platform is status)

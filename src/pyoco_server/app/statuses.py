"""How the platform's words for runs and tasks stand to the core's for executions and nodes. The only such place."""

from enum import StrEnum, unique
from typing import Final

from pyoco_server.core import CancelMode, ExecutionState, ExecutionStatus, NodeStatus
from pyoco_server.core.graph import NodeType


@unique
class RunStatus(StrEnum):
    """How a run stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"


@unique
class TaskStatus(StrEnum):
    """How a task stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL_RUN: Final = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})

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


def run_status(state: ExecutionState) -> RunStatus:
    """The platform's word for how an execution stands."""
    if state.status in _ENDS:
        return _ENDS[state.status]
    if state.is_cancel_requested:
        return RunStatus.CANCELLING
    return RunStatus.PENDING if state.started_at is None else RunStatus.RUNNING


def task_status(status: NodeStatus) -> TaskStatus:
    """The platform's word for how a node stands."""
    return _TASKS[status]


def execution_statuses(status: RunStatus) -> frozenset[ExecutionStatus]:
    """The core's statuses a run of this status can have."""
    ended = frozenset(core for core, platform in _ENDS.items() if platform is status)
    return ended or frozenset({ExecutionStatus.ACTIVE})


def ended_status(status: RunStatus) -> ExecutionStatus:
    """The core's word for a terminal status."""
    return next(core for core, platform in _ENDS.items() if platform is status)


def cancel_mode(state: ExecutionState) -> CancelMode:
    """Wait only for tasks at work: blocks and waits have nothing to stop, wherever they are driven."""
    at_work = any(
        node.is_at_work and node.node_type == NodeType.TASK and node.status is NodeStatus.RUNNING
        for node in state.live_nodes()
    )
    return CancelMode.WAIT_FOR_WORKERS if at_work else CancelMode.IMMEDIATE


def node_statuses(status: TaskStatus) -> frozenset[NodeStatus]:
    """The core's statuses a task of this status can have."""
    return frozenset(core for core, platform in _TASKS.items() if platform is status)

"""Logs of executions and nodes in every status that an event or a command can meet."""

from typing import Any

from pyoco_server.core import Event, ExecutionStatus, NodeStatus
from tests.build import event

Step = tuple[str, dict[str, Any]]

_READY: Step = ("NODE_READY", {})
_STARTED: Step = ("NODE_STARTED", {"attempt": 1, "workerId": "w1"})
_WAITING: Step = ("NODE_WAITING", {"waitKey": "key"})

STEPS_TO: dict[NodeStatus, list[Step]] = {
    NodeStatus.IDLE: [],
    NodeStatus.READY: [_READY],
    NodeStatus.RUNNING: [_READY, _STARTED],
    NodeStatus.WAITING: [_READY, _STARTED, _WAITING],
    NodeStatus.SUCCEEDED: [_READY, _STARTED, ("NODE_SUCCEEDED", {})],
    NodeStatus.FAILED: [_READY, _STARTED, ("NODE_FAILED", {})],
    NodeStatus.CANCELED: [_READY, ("NODE_CANCELED", {})],
}
"""The events that bring a new node to a status."""

ENDED_BY = {
    ExecutionStatus.COMPLETED: "EXECUTION_COMPLETED",
    ExecutionStatus.FAILED: "EXECUTION_FAILED",
    ExecutionStatus.CANCELED: "EXECUTION_CANCELED",
}
"""The event that brings an execution to each of its ends."""


def created() -> list[Event]:
    """An execution that exists and was not started."""
    return [event("EXECUTION_CREATED", graphId="g")]


def started() -> list[Event]:
    """An execution that has started."""
    return [*created(), event("EXECUTION_STARTED")]


def with_node(status: NodeStatus, node_id: str = "a", *, retries: int = 0, node_type: str = "Task") -> list[Event]:
    """An execution that has started, with one node in this status."""
    meta = {"inputs": 1, "retries": retries}
    made = event("NODE_CREATED", nodeId=node_id, nodeType=node_type, meta=meta)
    steps = [event(name, nodeId=node_id, **fields) for name, fields in STEPS_TO[status]]
    return [*started(), made, *steps]


def cancel_requested(status: NodeStatus = NodeStatus.RUNNING) -> list[Event]:
    """The same after a cancel of the execution was requested."""
    return [*with_node(status), event("EXECUTION_CANCEL_REQUESTED", reason="enough")]


def ended(how: ExecutionStatus, status: NodeStatus = NodeStatus.RUNNING) -> list[Event]:
    """The same after the execution ended."""
    return [*with_node(status), event(ENDED_BY[how])]

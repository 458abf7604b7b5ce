"""One event of every type, and a log with a node in every status."""

from typing import Any

from pyoco_server.core import Event
from tests.build import event

CREATED = event("EXECUTION_CREATED", graphId="g")
REQUESTED = event("EXECUTION_CANCEL_REQUESTED", reason="enough")
GATE: dict[str, Any] = {
    "expectedBranches": ["a"],
    "completedBranches": [],
    "failedBranches": [],
    "canceledBranches": [],
    "policy": "ALL_SUCCESS",
    "isPassable": False,
}
PAYLOADS: dict[str, dict[str, Any]] = {
    "EXECUTION_CREATED": {"graphId": "g"},
    "NODE_CREATED": {"nodeType": "Task"},
    "NODE_STARTED": {"attempt": 1, "workerId": "w"},
    "NODE_PROGRESS_REPORTED": {"progress": 5},
    "NODE_WAITING": {"waitKey": "k"},
    "NODE_SUCCEEDED": {"output": {"n": 1}},
    "FORK_OPENED": {"branchIds": ["b"]},
    "JOIN_GATE_UPDATED": GATE,
}


def any_event(name: str, node_id: str = "a", **fields: Any) -> Event:
    """One event of the type, about the node if it is a node's."""
    about: dict[str, Any] = {} if name.startswith("EXECUTION") else {"nodeId": node_id}
    return event(name, **about, **PAYLOADS.get(name, {}) | fields)


def nodes_in_every_status() -> list[Event]:
    """A log that leaves one node in each of the seven statuses, named after it."""
    paths = {
        "IDLE": [],
        "READY": ["NODE_READY"],
        "RUNNING": ["NODE_READY", "NODE_STARTED"],
        "WAITING": ["NODE_READY", "NODE_STARTED", "NODE_WAITING"],
        "SUCCEEDED": ["NODE_READY", "NODE_STARTED", "NODE_SUCCEEDED"],
        "FAILED": ["NODE_READY", "NODE_STARTED", "NODE_FAILED"],
        "CANCELED": ["NODE_CANCELED"],
    }
    log = [CREATED]
    for status, names in paths.items():
        log += [any_event(name, status) for name in ["NODE_CREATED", *names]]
    return log

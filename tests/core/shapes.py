"""The fields of every payload and every command, with good and bad values for each, as tables."""

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of field: one valid value, and values that must be refused."""

    good: Any
    bad: tuple[Any, ...]


KINDS = {
    "text": Kind("x", (7, True, ["x"], {"k": 1})),
    "object": Kind({"k": [1, None, {"deep": True}]}, ("x", 7, ["x"])),
    "attempt": Kind(1, (0, -1, 1.5, "1", True)),
    "percent": Kind(50, (-1, 101, 100.5, "50", True)),
    "texts": Kind(["x", "y"], ("x", 7, {"k": "x"})),
    "policy": Kind("ALL_DONE", ("SOME", "all_done", 7)),
    "flag": Kind(True, (1, "true")),
    "party": Kind({"kind": "user", "id": "ann"}, ("ann", 7, ["ann"])),
    "error": Kind({"code": "E", "message": "broke", "detail": {"line": 3}}, ("broke", 7, ["broke"])),
    "moment": Kind("2026-01-01T00:00:00Z", ("yesterday", "2026-01-01", 7)),
}


class Shape(NamedTuple):
    """A payload or a command: its section, and its own fields with their kinds."""

    section: str
    required: dict[str, str]
    optional: dict[str, str]


_NODE = {"nodeId": "text"}
_ATTEMPT = {"attempt": "attempt"}  # not in the list of fields, but what fences off a worker that was replaced

PAYLOADS = {
    "EXECUTION_CREATED": Shape("000 §3.1", {"graphId": "text"}, {"input": "object"}),
    "EXECUTION_STARTED": Shape("000 §3.2", {}, {"startedBy": "party"}),
    "EXECUTION_COMPLETED": Shape("000 §3.3", {}, {"result": "object"}),
    "EXECUTION_ARCHIVED": Shape("000 §3.4", {}, {"reason": "text"}),
    "EXECUTION_CANCEL_REQUESTED": Shape("000 §3.5", {}, {"reason": "text", "requestedBy": "party"}),
    "EXECUTION_CANCELED": Shape("000 §3.6", {}, {"reason": "text", "canceledAt": "moment"}),
    "EXECUTION_FAIL_REQUESTED": Shape("000 §3.7", {}, {"reason": "text", "requestedBy": "party"}),
    "EXECUTION_FAILED": Shape("000 §3.8", {}, {"reason": "text", "failedNodeId": "text", "error": "error"}),
    "NODE_CREATED": Shape("000 §3.9", _NODE | {"nodeType": "text"}, {"meta": "object"}),
    "NODE_READY": Shape("000 §3.10", _NODE, {}),
    "NODE_STARTED": Shape("000 §3.11", _NODE | _ATTEMPT, {"workerId": "text"}),
    "NODE_PROGRESS_REPORTED": Shape(
        "000 §3.12", _NODE, {"progress": "percent", "message": "text", "metrics": "object"} | _ATTEMPT
    ),
    "NODE_WAITING": Shape("000 §3.13", _NODE, {"waitKey": "text", "prompt": "object"} | _ATTEMPT),
    "NODE_RESUME_REQUESTED": Shape("000 §3.14", _NODE, {"resumeKey": "text", "requestedBy": "party"}),
    "NODE_RESUMED": Shape("000 §3.15", _NODE, {}),
    "NODE_SUCCEEDED": Shape("000 §3.16", _NODE, {"output": "object"} | _ATTEMPT),
    "NODE_FAIL_REPORTED": Shape("000 §3.17", _NODE, {"error": "error"} | _ATTEMPT),
    # The list of fields leaves nodeId out here; without it the event would speak of no node.
    "NODE_FAILED": Shape("000 §3.18", _NODE, {"error": "error"} | _ATTEMPT),
    "NODE_CANCEL_REQUESTED": Shape("000 §3.19", _NODE, {"reason": "text"}),
    "NODE_CANCELED": Shape("000 §3.20", _NODE, {"reason": "text"}),
    "NODE_INTERRUPT_REQUESTED": Shape("000 §3.21", _NODE, {"workerId": "text", "reason": "text"}),
    "FORK_OPENED": Shape("000 §3.22", _NODE | {"branchIds": "texts"}, {}),
    "JOIN_GATE_UPDATED": Shape(
        "000 §3.23",
        _NODE
        | dict.fromkeys(("expectedBranches", "completedBranches", "failedBranches", "canceledBranches"), "texts")
        | {"policy": "policy", "isPassable": "flag"},
        {},
    ),
    "JOIN_PASSED": Shape("000 §3.24", _NODE, {}),
}

COMMANDS = {
    "CreateExecution": Shape("001 §4.1", {"graphId": "text"}, {"input": "object"}),
    "StartExecution": Shape("001 §4.2", {}, {"startedBy": "party"}),
    "CancelExecution": Shape("001 §4.3", {}, {"reason": "text", "requestedBy": "party"}),
    "ArchiveExecution": Shape("001 §4.4", {}, {"reason": "text"}),
    "MarkNodeReady": Shape("001 §4.5", _NODE, {}),
    "StartNode": Shape("001 §4.6", _NODE, {"workerId": "text"} | _ATTEMPT),
    "ReportNodeProgress": Shape(
        "001 §4.7", _NODE, {"progress": "percent", "message": "text", "metrics": "object"} | _ATTEMPT
    ),
    "PutNodeWaiting": Shape("001 §4.8", _NODE, {"waitKey": "text", "prompt": "object"} | _ATTEMPT),
    "RequestResumeNode": Shape("001 §4.9", _NODE, {"resumeKey": "text", "requestedBy": "party"}),
    "ResumeNode": Shape("001 §4.10", _NODE, {"resumeKey": "text"}),
    "SucceedNode": Shape("001 §4.11", _NODE, {"output": "object"} | _ATTEMPT),
    "FailNode": Shape("001 §4.12", _NODE, {"error": "error"} | _ATTEMPT),
}


def smallest(shape: Shape) -> dict[str, Any]:
    """The required fields, with good values."""
    return {field: KINDS[kind].good for field, kind in shape.required.items()}


def fullest(shape: Shape) -> dict[str, Any]:
    """All fields, with good values."""
    return smallest(shape) | {field: KINDS[kind].good for field, kind in shape.optional.items()}

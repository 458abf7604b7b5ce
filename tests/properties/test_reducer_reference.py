"""Compares the reducer with a second, naive one over plain dictionaries.

The reference follows the specification's steps one by one, with the project's decisions where the documents disagree or
say nothing: a resume is the one step down, an event of a stale attempt is ignored, nothing becomes ready after the end,
a creation does not undo an end, a node canceled after the request was canceled by the execution, and results from
before the cancel of the execution are marked.
"""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyoco_server.core import Event, ExecutionState, NodeStatus, event_to_dict, initial_state, reduce
from pyoco_server.core.transitions import EXECUTION_RANK, NODE_RANK
from tests.build import EXECUTION, T0, event

Plain = dict[str, Any]

EXEC_RANK = {"CANCELED": 400, "FAILED": 300, "COMPLETED": 200, "ACTIVE": 100}
RANK = {"CANCELED": 700, "FAILED": 600, "SUCCEEDED": 500, "WAITING": 400, "RUNNING": 300, "READY": 200, "IDLE": 100}
PROGRESS = {
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
REPORTS: dict[str, tuple[str | None, str]] = {
    "NODE_STARTED": ("RUNNING", "workerId"),
    "NODE_WAITING": ("WAITING", "waitKey"),
    "NODE_SUCCEEDED": ("SUCCEEDED", "output"),
    "NODE_FAIL_REPORTED": (None, "error"),
    "NODE_FAILED": ("FAILED", "error"),
}
FIRST_TIMES = {
    "EXECUTION_CANCEL_REQUESTED": ("cancelRequestedAt", "ACTIVE"),
    "EXECUTION_CANCELED": ("canceledAt", "CANCELED"),
    "EXECUTION_FAILED": ("failedAt", "FAILED"),
    "EXECUTION_COMPLETED": ("completedAt", "COMPLETED"),
}
TIMES = ("cancelRequestedAt", "canceledAt", "failedAt", "completedAt")


# --- The reference ---------------------------------------------------------------------------------------------------


def blank() -> Plain:
    return {"status": "ACTIVE", "nodes": {}, **dict.fromkeys(TIMES)}


def reference(state: Plain, wire: Plain) -> None:
    if wire["schemaVersion"] != 1:
        return
    if state["cancelRequestedAt"] is not None and wire["type"] in PROGRESS:
        return
    if wire["type"].startswith("EXECUTION"):
        apply_to_execution(state, wire["type"], wire["occurredAt"])
    else:
        apply_to_node(state, wire["type"], wire["payload"])
    normalize(state)


def apply_to_execution(state: Plain, name: str, at: str) -> None:
    if name in ("EXECUTION_CREATED", "EXECUTION_STARTED"):
        choose_exec(state, "ACTIVE")
    if name in FIRST_TIMES:
        field, status = FIRST_TIMES[name]
        state[field] = state[field] or at
        choose_exec(state, status)


def choose_exec(state: Plain, candidate: str) -> None:
    if EXEC_RANK[candidate] > EXEC_RANK[state["status"]]:
        state["status"] = candidate


def apply_to_node(state: Plain, name: str, payload: Plain) -> None:
    node = state["nodes"].get(payload["nodeId"])
    if node is None:
        if name == "NODE_CREATED":
            state["nodes"][payload["nodeId"]] = new_node(payload)
        return
    if payload.get("attempt", node["attempt"]) < node["attempt"]:
        return
    if name in ("NODE_READY", "NODE_RESUMED", "NODE_CANCELED"):
        move_node(state, node, name)
    elif name in REPORTS:
        status, field = REPORTS[name]
        if status is not None:
            choose_node(node, status)
        if name == "NODE_STARTED":
            node["attempt"] = max(node["attempt"], payload["attempt"])
        node[field] = node[field] if payload.get(field) is None else payload[field]


def move_node(state: Plain, node: Plain, name: str) -> None:
    if name == "NODE_READY" and state["status"] == "ACTIVE":
        choose_node(node, "READY")
    if name == "NODE_RESUMED" and node["status"] == "WAITING":
        node["status"] = "RUNNING"
    if name == "NODE_CANCELED" and node["status"] != "CANCELED":
        choose_node(node, "CANCELED")
        node["canceledByExecution"] = state["cancelRequestedAt"] is not None


def new_node(payload: Plain) -> Plain:
    return {
        "nodeType": payload["nodeType"],
        "status": "IDLE",
        "attempt": 0,
        "workerId": None,
        "waitKey": None,
        "output": None,
        "error": None,
        "canceledByExecution": False,
        "cancellationApplied": False,
    }


def choose_node(node: Plain, candidate: str) -> None:
    if RANK[candidate] > RANK[node["status"]]:
        node["status"] = candidate


def normalize(state: Plain) -> None:
    if state["status"] != "CANCELED":
        return
    for node in state["nodes"].values():
        if node["status"] in {"IDLE", "READY", "RUNNING", "WAITING"}:
            choose_node(node, "CANCELED")
            node["canceledByExecution"] = True
        elif node["status"] in {"SUCCEEDED", "FAILED"}:
            node["cancellationApplied"] = True


# --- Random logs -----------------------------------------------------------------------------------------------------

node_ids = st.sampled_from(["a", "b", "c"])
attempts = st.integers(1, 3)
objects = st.sampled_from([{"n": 1}, {"n": 2}, {}])
errors = st.sampled_from([{"code": "E"}, {"code": "F", "message": "broke"}])
texts = st.sampled_from(["one", "two"])
branch_lists = st.lists(node_ids, max_size=3)
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "EXECUTION_CREATED": ({"graphId": texts}, {"input": objects}),
    "EXECUTION_STARTED": ({}, {}),
    "EXECUTION_COMPLETED": ({}, {"result": objects}),
    "EXECUTION_ARCHIVED": ({}, {"reason": texts}),
    "EXECUTION_CANCEL_REQUESTED": ({}, {"reason": texts}),
    "EXECUTION_CANCELED": ({}, {"reason": texts}),
    "EXECUTION_FAIL_REQUESTED": ({}, {"reason": texts}),
    "EXECUTION_FAILED": ({}, {"error": errors}),
    "NODE_CREATED": ({"nodeId": node_ids, "nodeType": st.sampled_from(["Task", "Wait", "Join"])}, {}),
    "NODE_READY": ({"nodeId": node_ids}, {}),
    "NODE_STARTED": ({"nodeId": node_ids, "attempt": attempts}, {"workerId": texts}),
    "NODE_PROGRESS_REPORTED": ({"nodeId": node_ids}, {"attempt": attempts, "progress": st.integers(0, 100)}),
    "NODE_WAITING": ({"nodeId": node_ids}, {"attempt": attempts, "waitKey": texts, "prompt": objects}),
    "NODE_RESUME_REQUESTED": ({"nodeId": node_ids}, {"attempt": attempts, "resumeKey": texts}),
    "NODE_RESUMED": ({"nodeId": node_ids}, {"attempt": attempts}),
    "NODE_SUCCEEDED": ({"nodeId": node_ids}, {"attempt": attempts, "output": objects}),
    "NODE_FAIL_REPORTED": ({"nodeId": node_ids}, {"attempt": attempts, "error": errors}),
    "NODE_FAILED": ({"nodeId": node_ids}, {"attempt": attempts, "error": errors}),
    "NODE_CANCEL_REQUESTED": ({"nodeId": node_ids}, {"attempt": attempts, "reason": texts}),
    "NODE_CANCELED": ({"nodeId": node_ids}, {"attempt": attempts, "reason": texts}),
    "NODE_INTERRUPT_REQUESTED": ({"nodeId": node_ids}, {"attempt": attempts, "workerId": texts}),
    "FORK_OPENED": ({"nodeId": node_ids, "branchIds": branch_lists}, {}),
    "JOIN_GATE_UPDATED": (
        {
            "nodeId": node_ids,
            "expectedBranches": branch_lists,
            "completedBranches": branch_lists,
            "failedBranches": branch_lists,
            "canceledBranches": branch_lists,
            "policy": st.sampled_from(["ALL_SUCCESS", "ANY_SUCCESS", "ALL_DONE", "CUSTOM"]),
            "isPassable": st.booleans(),
        },
        {},
    ),
    "JOIN_PASSED": ({"nodeId": node_ids}, {}),
}


@st.composite
def events(draw: st.DrawFn) -> Event:
    name = draw(st.sampled_from(sorted(FIELDS)))
    required, optional = FIELDS[name]
    fields: Plain = draw(st.fixed_dictionaries(required, optional=optional))
    return event(name, at=T0 + timedelta(seconds=draw(st.integers(0, 9))), **fields)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Any events in any order; often with the nodes created first, so that the rest has something to act on."""
    created = [event("NODE_CREATED", nodeId=node_id, nodeType="Task") for node_id in "abc"]
    return (created if draw(st.booleans()) else []) + draw(st.lists(events(), max_size=25))


def steps(log: list[Event]) -> list[ExecutionState]:
    """The states before the log and after each of its events."""
    found = [initial_state(EXECUTION)]
    for happened in log:
        found.append(reduce(found[-1], happened))
    return found


def as_reference(state: ExecutionState) -> Plain:
    """The state in the reference's terms."""
    moments = (state.cancel_requested_at, state.canceled_at, state.failed_at, state.completed_at)
    written: Plain = {"status": state.status.value, "nodes": {}}
    for name, moment in zip(TIMES, moments, strict=True):
        written[name] = moment.isoformat().replace("+00:00", "Z") if moment else None
    for node_id, node in state.nodes.items():
        written["nodes"][node_id] = {
            "nodeType": node.node_type,
            "status": node.status.value,
            "attempt": node.attempt,
            "workerId": node.worker_id,
            "waitKey": node.wait_key,
            "output": node.output,
            "error": node.error,
            "canceledByExecution": node.canceled_by_execution,
            "cancellationApplied": node.cancellation_applied,
        }
    return written


# --- The comparison --------------------------------------------------------------------------------------------------


def test_random_logs_hold_all_24_types() -> None:
    assert len(FIELDS) == 24


@pytest.mark.spec("002 §5", "002 §7", "002 §8.1", "002 §9.1", "002 §9.2", "002 §9.3", "002 §9.4")
@settings(max_examples=300, deadline=None)
@given(logs())
def test_both_reducers_agree_after_every_event(log: list[Event]) -> None:
    expected = blank()
    for happened, after in zip(log, steps(log)[1:], strict=True):
        reference(expected, event_to_dict(happened))
        assert as_reference(after) == expected


@pytest.mark.spec("002 §9.1", "003 §6.1")
@settings(max_examples=200, deadline=None)
@given(logs())
def test_execution_status_only_gets_stronger(log: list[Event]) -> None:
    ranks = [EXECUTION_RANK[state.status] for state in steps(log)]
    assert ranks == sorted(ranks)


@pytest.mark.spec("002 §9.2", "003 §6.2")
@settings(max_examples=200, deadline=None)
@given(logs())
def test_node_status_only_gets_stronger_except_by_a_resume(log: list[Event]) -> None:
    states = steps(log)
    for happened, before, after in zip(log, states, states[1:], strict=False):
        for node_id, node in before.nodes.items():
            now = after.nodes[node_id].status
            resumed = happened.type == "NODE_RESUMED" and (node.status, now) == (NodeStatus.WAITING, NodeStatus.RUNNING)
            assert resumed or NODE_RANK[now] >= NODE_RANK[node.status]


@pytest.mark.spec("002 §9.3", "003 §5.2 rule 2")
@settings(max_examples=200, deadline=None)
@given(logs(), logs())
def test_canceled_stays_canceled_whatever_follows(before: list[Event], after: list[Event]) -> None:
    canceled = [state.status for state in steps([*before, event("EXECUTION_CANCELED"), *after])[len(before) + 1 :]]
    assert set(canceled) == {"CANCELED"}


@pytest.mark.spec("002 §9.4", "003 §5.2 rule 1")
@settings(max_examples=200, deadline=None)
@given(logs(), logs())
def test_cancel_request_stays_and_keeps_its_time(before: list[Event], after: list[Event]) -> None:
    states = steps([*before, event("EXECUTION_CANCEL_REQUESTED"), *after])[len(before) + 1 :]
    assert None not in {state.cancel_requested_at for state in states}
    assert len({state.cancel_requested_at for state in states}) == 1


@settings(max_examples=200, deadline=None)
@given(logs())
def test_version_rises_only_with_a_new_state(log: list[Event]) -> None:
    states = steps(log)
    for before, after in itertools.pairwise(states):
        assert after.version == before.version + (after is not before)

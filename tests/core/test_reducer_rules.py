"""Rules of the reducer for every event: filters, fences, convergence."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from pyoco_server.core import (
    Event,
    EventType,
    ExecutionStatus,
    NodeStatus,
    initial_state,
    reduce,
    state_to_dict,
)
from pyoco_server.core.reducer import ForeignEventError
from pyoco_server.core.transitions import IGNORED_AFTER_CANCEL
from tests.build import EXECUTION, T0, Run, chain, diamond, event, state_of
from tests.core.samples import CREATED, REQUESTED, any_event, nodes_in_every_status

# --- Fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §2 ExecutionState", "003 §12.1")
def test_state_has_the_fields_of_the_specification() -> None:
    assert state_to_dict(initial_state(EXECUTION)).keys() >= {
        "executionId",
        "graphId",
        "status",
        "nodes",
        "cancelRequestedAt",
        "canceledAt",
        "failedAt",
        "completedAt",
        "version",
    }


@pytest.mark.spec("002 §2 NodeState")
def test_node_has_the_fields_of_the_specification() -> None:
    assert state_to_dict(state_of(*nodes_in_every_status()))["nodes"]["WAITING"].keys() >= {
        "nodeId",
        "nodeType",
        "status",
        "attempt",
        "workerId",
        "waitKey",
        "output",
        "error",
        "canceledByExecution",
    }


@pytest.mark.spec("002 §2 ExecutionState")
def test_state_as_json_says_what_the_state_holds() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    written = state_to_dict(run.state)
    assert (written["executionId"], written["graphId"], written["status"]) == (EXECUTION, "g", "ACTIVE")
    assert (written["createdAt"], written["startedAt"]) == ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z")
    assert written["nodes"]["a"]["status"] == "SUCCEEDED"
    assert written["joinGates"]["j"]["completedBranches"] == ["a"]


@pytest.mark.spec("002 §2 ExecutionState")
def test_absent_values_are_null_in_json() -> None:
    written = state_to_dict(initial_state(EXECUTION))
    assert [written[name] for name in ("graphId", "canceledAt", "failedAt", "completedAt", "cancelReason")] == [
        None
    ] * 5


@pytest.mark.spec("003 §12.1")
def test_nodes_remember_their_edges() -> None:
    state = Run(chain("a")).state
    assert [edge.to for edge in state.nodes["s"].edges] == ["a"]


# --- The root reducer ------------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §5")
@pytest.mark.parametrize("name", EventType)
def test_another_schema_version_changes_nothing(name: str) -> None:
    state = state_of(*nodes_in_every_status())
    foreign = msgspec.structs.replace(any_event(name, "IDLE"), schema_version=2)
    assert reduce(state, foreign) is state


@pytest.mark.spec("002 §4.3", "002 §5", "003 §5.2 rule 1")
@pytest.mark.parametrize("name", sorted(IGNORED_AFTER_CANCEL))
@pytest.mark.parametrize("node_id", list(NodeStatus))
def test_progress_after_a_cancel_request_changes_nothing(name: str, node_id: str) -> None:
    state = state_of(*nodes_in_every_status(), REQUESTED)
    assert reduce(state, any_event(name, node_id)) is state


@pytest.mark.spec("002 §4.3")
@pytest.mark.parametrize("name", sorted(set(EventType) - IGNORED_AFTER_CANCEL - {"EXECUTION_CANCEL_REQUESTED"}))
def test_other_events_are_taken_after_a_cancel_request(name: str) -> None:
    log = [REQUESTED] if name == "EXECUTION_CREATED" else [CREATED, any_event("NODE_CREATED"), REQUESTED]
    node_id = "new" if name == "NODE_CREATED" else "a"
    state = state_of(*log)
    assert reduce(state, any_event(name, node_id)).version == state.version + 1


@pytest.mark.spec("002 §10")
@pytest.mark.parametrize("name", EventType)
def test_reducing_leaves_the_old_state_alone(name: str) -> None:
    state = state_of(*nodes_in_every_status())
    written = state_to_dict(state)
    reduce(state, any_event(name, "RUNNING"))
    assert state_to_dict(state) == written


@pytest.mark.spec("002 §10")
@pytest.mark.parametrize("name", EventType)
def test_reducing_twice_from_one_state_gives_the_same(name: str) -> None:
    state = state_of(*nodes_in_every_status())
    found = any_event(name, "RUNNING")
    assert reduce(state, found) == reduce(state, found)


def test_event_of_another_execution_is_an_error() -> None:
    foreign = msgspec.structs.replace(CREATED, execution_id="run-2")
    with pytest.raises(ForeignEventError, match=r"'run-2', not 'run-1'"):
        reduce(initial_state(EXECUTION), foreign)


# --- Nodes -----------------------------------------------------------------------------------------------------------

STATUS_EVENTS = [
    "NODE_READY",
    "NODE_STARTED",
    "NODE_WAITING",
    "NODE_RESUMED",
    "NODE_SUCCEEDED",
    "NODE_FAILED",
    "NODE_CANCELED",
]


@pytest.mark.spec("002 §7")
@pytest.mark.parametrize(
    "name", [*STATUS_EVENTS, "NODE_PROGRESS_REPORTED", "NODE_FAIL_REPORTED", "NODE_INTERRUPT_REQUESTED"]
)
def test_unknown_node_changes_nothing(name: str) -> None:
    state = state_of(CREATED)
    assert reduce(state, any_event(name, "ghost")) is state


@pytest.mark.spec("002 §7")
@pytest.mark.parametrize("name", STATUS_EVENTS)
def test_other_nodes_are_left_alone(name: str) -> None:
    state = state_of(*nodes_in_every_status(), any_event("NODE_CREATED", "a"))
    after = reduce(state, any_event(name, "a"))
    assert after.nodes.delete("a") == state.nodes.delete("a")


@pytest.mark.parametrize("ending", ["EXECUTION_COMPLETED", "EXECUTION_FAILED", "EXECUTION_CANCELED"])
def test_nothing_becomes_ready_in_an_ended_execution(ending: str) -> None:
    state = state_of(CREATED, any_event("NODE_CREATED"), event(ending))
    assert reduce(state, any_event("NODE_READY")) is state


FENCED = [
    ("NODE_STARTED", {}),
    ("NODE_PROGRESS_REPORTED", {}),
    ("NODE_WAITING", {}),
    ("NODE_SUCCEEDED", {}),
    ("NODE_FAIL_REPORTED", {"error": {"code": "E"}}),
    ("NODE_FAILED", {"error": {"code": "E"}}),
]


@pytest.mark.parametrize(("name", "fields"), FENCED)
def test_stale_attempt_changes_nothing(name: str, fields: dict[str, Any]) -> None:
    state = state_of(CREATED, any_event("NODE_CREATED"), any_event("NODE_STARTED", attempt=2))
    assert reduce(state, any_event(name, **fields | {"attempt": 1})) is state


@pytest.mark.parametrize(("name", "fields"), FENCED[1:])
@pytest.mark.parametrize("attempt", [{"attempt": 2}, {}])
def test_event_of_the_current_attempt_takes_effect(name: str, fields: dict[str, Any], attempt: dict[str, int]) -> None:
    state = state_of(CREATED, any_event("NODE_CREATED"), any_event("NODE_STARTED", attempt=2))
    assert reduce(state, any_event(name, **fields | attempt)) is not state


def test_retry_keeps_the_node_running() -> None:
    log = [CREATED, *[any_event(name) for name in ("NODE_CREATED", "NODE_READY", "NODE_STARTED")]]
    state = state_of(*log, any_event("NODE_FAIL_REPORTED", attempt=1), any_event("NODE_STARTED", attempt=2))
    assert (state.nodes["a"].status, state.nodes["a"].attempt) == (NodeStatus.RUNNING, 2)


# --- Convergence -----------------------------------------------------------------------------------------------------

CONVERGED = {
    "IDLE": ("CANCELED", True, False),
    "READY": ("CANCELED", True, False),
    "RUNNING": ("CANCELED", True, False),
    "WAITING": ("CANCELED", True, False),
    "SUCCEEDED": ("SUCCEEDED", False, True),
    "FAILED": ("FAILED", False, True),
    "CANCELED": ("CANCELED", False, False),
}


@pytest.mark.spec("002 §8.1", "003 §5.2 rule 3")
@pytest.mark.parametrize("before", CONVERGED)
@pytest.mark.parametrize("log", [[], [REQUESTED]], ids=["unasked", "asked"])
def test_canceled_execution_leaves_no_node_open(before: str, log: list[Event]) -> None:
    node = state_of(*nodes_in_every_status(), *log, event("EXECUTION_CANCELED")).nodes[before]
    assert (node.status, node.canceled_by_execution, node.cancellation_applied) == CONVERGED[before]


@pytest.mark.spec("002 §8.1")
def test_node_created_in_a_canceled_execution_is_canceled() -> None:
    node = state_of(CREATED, event("EXECUTION_CANCELED"), any_event("NODE_CREATED")).nodes["a"]
    assert (node.status, node.canceled_by_execution) == (NodeStatus.CANCELED, True)


@pytest.mark.spec("002 §8.1")
@pytest.mark.parametrize("ending", ["EXECUTION_COMPLETED", "EXECUTION_FAILED"])
def test_other_ends_leave_open_nodes_alone(ending: str) -> None:
    before = state_of(*nodes_in_every_status())
    assert reduce(before, event(ending)).nodes == before.nodes


@pytest.mark.spec("002 §8.1", "003 §5.2 rule 3")
@pytest.mark.parametrize(("log", "by_execution"), [([], False), ([REQUESTED], True)], ids=["alone", "with all"])
def test_canceled_node_records_whether_the_execution_was_canceled(log: list[Event], by_execution: bool) -> None:
    node = state_of(*nodes_in_every_status(), *log, any_event("NODE_CANCELED", "RUNNING")).nodes["RUNNING"]
    assert node.canceled_by_execution is by_execution


@pytest.mark.spec("002 §6 EXECUTION_CANCELED", "002 §9.3", "003 §5.2 rule 2")
@pytest.mark.parametrize("name", EventType)
def test_canceled_execution_stays_canceled(name: str) -> None:
    state = state_of(*nodes_in_every_status(), event("EXECUTION_CANCELED"))
    after = reduce(state, any_event(name, "FAILED", at=T0 + timedelta(hours=1)))
    assert (after.status, after.canceled_at) == (ExecutionStatus.CANCELED, T0)

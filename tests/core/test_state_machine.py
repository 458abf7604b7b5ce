"""The rules of the state machine, each in an execution."""

from datetime import timedelta
from typing import Any

import pytest

from pyoco_server.core import (
    ActorKind,
    CancelMode,
    CommandRejected,
    Event,
    EventType,
    ExecutionStatus,
    NodeStatus,
    RejectionCode,
    confirm_stopped,
    event_to_dict,
    fold,
    graph_from_dict,
    graph_to_dict,
    orchestrate,
    reduce,
    state_to_dict,
)
from pyoco_server.core.events import Actor
from tests.build import T0, Run, chain, diamond, event, payload, types

SYSTEM = Actor(ActorKind.SYSTEM)


def refusal(run: Run, name: str, node_id: str | None = None, **fields: Any) -> RejectionCode:
    """Why the command is refused; nothing may have changed by it."""
    before = run.state
    with pytest.raises(CommandRejected) as refused:
        run.do(name, node_id, **fields)
    assert run.state is before
    return refused.value.code


def running() -> Run:
    run = Run(chain("a", "b"))
    run.start("a")
    return run


def waiting() -> Run:
    run = running()
    run.do("PutNodeWaiting", "a", waitKey="k", prompt={"title": "go on?"})
    return run


def canceling() -> Run:
    """A cancel was requested; the worker of *a* has not stopped yet."""
    run = running()
    run.do("CancelExecution")
    return run


def ended(status: str) -> Run:
    run = running()
    if status == "COMPLETED":
        run.do("SucceedNode", "a")
        run.succeed("b")
    elif status == "FAILED":
        run.do("FailNode", "a")
    else:
        run.do("CancelExecution", cancel_mode=CancelMode.IMMEDIATE)
    assert run.state.status == status
    return run


# --- Events ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §4.1")
@pytest.mark.parametrize("kind", ["system", "user", "scheduler", "external"])
def test_every_event_says_whose_it_is_and_when(kind: str) -> None:
    run = Run(chain("a"), started=False)
    made = run.do("StartExecution", actor={"kind": kind}, correlationId="call-1")
    written = [event_to_dict(found) for found in made]
    assert {found["executionId"] for found in written} == {"run-1"}
    assert {found["occurredAt"] for found in written} == {"2026-01-01T00:00:02Z"}
    assert {found["correlationId"] for found in written} == {"call-1"}
    assert len({found["eventId"] for found in written}) == len(written)
    assert written[0]["actor"] == {"kind": kind}
    assert all(found["type"] in set(EventType) for found in written)


@pytest.mark.spec("003 §4.1")
def test_correlation_is_optional() -> None:
    assert all("correlationId" not in event_to_dict(found) for found in Run(chain("a")).log)


@pytest.mark.spec("003 §4.2")
def test_usual_events_of_an_execution_occur() -> None:
    seen = {found.type for status in ("COMPLETED", "FAILED", "CANCELED") for found in ended(status).log}
    assert seen >= {
        "EXECUTION_STARTED",
        "EXECUTION_CANCEL_REQUESTED",
        "EXECUTION_CANCELED",
        "EXECUTION_FAILED",
        "EXECUTION_COMPLETED",
    }


@pytest.mark.spec("003 §4.2")
def test_usual_events_of_a_node_occur() -> None:
    run = waiting()
    run.do("ResumeNode", "a")
    run.do("SucceedNode", "a")
    seen = {found.type for log in (run.log, ended("FAILED").log, ended("CANCELED").log) for found in log}
    assert seen >= {
        "NODE_READY",
        "NODE_STARTED",
        "NODE_WAITING",
        "NODE_RESUMED",
        "NODE_SUCCEEDED",
        "NODE_FAILED",
        "NODE_CANCELED",
    }


# --- Cancel wins -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §5.1")
def test_request_and_completion_of_a_cancel_are_two_events() -> None:
    run = canceling()
    assert (run.state.is_cancel_requested, run.state.status) == (True, ExecutionStatus.ACTIVE)
    run.commit(confirm_stopped(run.graph, run.state, "a", actor=SYSTEM, now=run.now, new_id=run.new_id))
    assert run.state.status is ExecutionStatus.CANCELED


RACES = [
    ("a node succeeds", "NODE_SUCCEEDED", {"nodeId": "a"}),
    ("a node fails", "NODE_FAILED", {"nodeId": "a"}),
    ("a join passes", "JOIN_PASSED", {"nodeId": "j"}),
    ("a node is resumed", "NODE_RESUMED", {"nodeId": "a"}),
    ("it completes", "EXECUTION_COMPLETED", {}),
    ("it fails", "EXECUTION_FAILED", {}),
]
RACE_ROWS = [pytest.param(name, fields, id=title) for title, name, fields in RACES]


@pytest.mark.spec("003 §5.1", "003 §5.2 rule 1", "003 §3.1")
@pytest.mark.parametrize(("name", "fields"), RACE_ROWS)
def test_cancel_request_comes_before_whatever_happens_later(name: str, fields: dict[str, Any]) -> None:
    state = reduce(canceling().state, event(name, **fields))
    assert state.status is ExecutionStatus.ACTIVE
    assert reduce(state, event("EXECUTION_CANCELED")).status is ExecutionStatus.CANCELED


@pytest.mark.spec("003 §5.2 rule 2", "003 §3.1")
@pytest.mark.parametrize(("name", "fields"), RACE_ROWS)
def test_canceled_cannot_be_undone(name: str, fields: dict[str, Any]) -> None:
    assert reduce(ended("CANCELED").state, event(name, **fields)).status is ExecutionStatus.CANCELED


@pytest.mark.spec("003 §5.2 rule 3")
def test_open_nodes_converge_and_results_are_marked() -> None:
    run = running()
    run.do("SucceedNode", "a", output={"n": 1})
    run.do("CancelExecution")
    assert (run.status("a"), run.state.nodes["a"].cancellation_applied) == (NodeStatus.SUCCEEDED, True)
    assert (run.status("b"), run.state.nodes["b"].cancellation_applied) == (NodeStatus.CANCELED, False)
    assert state_to_dict(run.state)["status"] == "CANCELED"


# --- Steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §6.1")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELED"])
def test_active_execution_can_end_in_three_ways(status: str) -> None:
    assert fold(ended(status).log).status == status


@pytest.mark.spec("003 §6.1")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELED"])
@pytest.mark.parametrize("name", ["StartExecution", "MarkNodeReady", "StartNode", "SucceedNode", "FailNode"])
def test_ended_execution_takes_no_step(status: str, name: str) -> None:
    node_id = None if name == "StartExecution" else "a"
    assert refusal(ended(status), name, node_id) is RejectionCode.EXECUTION_TERMINAL


@pytest.mark.spec("003 §6.1")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELED"])
def test_cancel_of_an_ended_execution_changes_nothing(status: str) -> None:
    run = ended(status)
    assert run.do("CancelExecution") == []
    assert run.state.status == status


def path(run: Run, node_id: str) -> list[str]:
    """The statuses the node went through."""
    seen: list[str] = []
    for end in range(1, len(run.log) + 1):
        node = fold(run.log[:end]).nodes.get(node_id)
        if node is not None and seen[-1:] != [node.status.value]:
            seen.append(node.status.value)
    return seen


NODE_PATHS = [
    (["SucceedNode"], "IDLE READY RUNNING SUCCEEDED"),
    (["FailNode"], "IDLE READY RUNNING FAILED"),
    (["PutNodeWaiting", "ResumeNode", "SucceedNode"], "IDLE READY RUNNING WAITING RUNNING SUCCEEDED"),
    (["PutNodeWaiting", "ResumeNode", "FailNode"], "IDLE READY RUNNING WAITING RUNNING FAILED"),
    (["PutNodeWaiting", "FailNode"], "IDLE READY RUNNING WAITING FAILED"),
]


@pytest.mark.spec("003 §6.2")
@pytest.mark.parametrize(("commands", "expected"), NODE_PATHS)
def test_path_of_a_node(commands: list[str], expected: str) -> None:
    run = Run(chain("a"))
    for name in ["StartNode", *commands]:
        run.do(name, "a")
    assert path(run, "a") == expected.split()


@pytest.mark.spec("003 §6.2")
@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ([], "IDLE READY CANCELED"),
        (["StartNode"], "IDLE READY RUNNING CANCELED"),
        (["StartNode", "PutNodeWaiting"], "IDLE READY RUNNING WAITING CANCELED"),
    ],
)
def test_open_node_can_be_canceled_from_any_status(commands: list[str], expected: str) -> None:
    run = Run(chain("a", "b"))
    for name in commands:
        run.do(name, "a")
    run.do("CancelExecution", cancel_mode=CancelMode.IMMEDIATE)
    assert (path(run, "a"), path(run, "b")) == (expected.split(), ["IDLE", "CANCELED"])


# --- Forks and joins -------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §7.1")
def test_reached_fork_makes_all_heads_ready_in_the_same_commit() -> None:
    made = Run(diamond("a", "b"), started=False).do("StartExecution")
    assert [payload(found)["nodeId"] for found in made if found.type is EventType.NODE_READY] == ["s", "f", "a", "b"]


@pytest.mark.spec("003 §7.2")
def test_join_does_not_pass_after_a_cancel_request() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    run.start("b")
    run.do("CancelExecution")
    made = run.do("SucceedNode", "b", observed=True)
    assert types(made) == ["NODE_SUCCEEDED", "EXECUTION_CANCELED"]
    assert (run.status("j"), run.status("after")) == (NodeStatus.CANCELED, NodeStatus.CANCELED)


@pytest.mark.spec("003 §7.2")
def test_failed_branch_after_a_cancel_request_ends_canceled() -> None:
    run = Run(diamond("a", "b"))
    run.start("a")
    run.do("CancelExecution")
    run.do("FailNode", "a", observed=True)
    assert (run.status("a"), run.state.status) == (NodeStatus.FAILED, ExecutionStatus.CANCELED)
    assert run.state.failed_at is None


# --- Wait, resume, cancel --------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §8.1")
def test_waiting_node_keeps_its_key_and_what_it_asks() -> None:
    node = waiting().state.nodes["a"]
    assert (node.status, node.wait_key, node.prompt) == (NodeStatus.WAITING, "k", {"title": "go on?"})


@pytest.mark.spec("003 §8.1")
def test_execution_does_not_end_while_a_node_waits() -> None:
    run = Run(diamond("a", "b", join={"policy": "ANY_SUCCESS", "losers": "leave"}))
    run.start("b")
    run.do("PutNodeWaiting", "b")
    run.succeed("a", "after")
    assert run.state.status is ExecutionStatus.ACTIVE


@pytest.mark.spec("003 §8.2", "003 §9.2")
def test_resume_continues_a_waiting_node() -> None:
    run = waiting()
    assert types(run.do("ResumeNode", "a")) == ["NODE_RESUMED"]
    assert run.status("a") is NodeStatus.RUNNING


@pytest.mark.spec("003 §8.2", "003 §9.2")
@pytest.mark.parametrize("made", [running, lambda: Run(chain("a"))], ids=["running", "ready"])
def test_resume_needs_a_waiting_node(made: Any) -> None:
    assert refusal(made(), "ResumeNode", "a") is RejectionCode.NODE_STATUS


@pytest.mark.spec("003 §8.2", "003 §9.2")
def test_resume_is_refused_after_a_cancel_request() -> None:
    run = Run(diamond("a", "b"))
    run.start("a", "b")
    run.do("PutNodeWaiting", "b")
    run.do("CancelExecution")
    assert refusal(run, "ResumeNode", "b") is RejectionCode.CANCEL_REQUESTED


@pytest.mark.spec("003 §8.3")
def test_cancel_ends_a_waiting_node_at_once() -> None:
    run = waiting()
    run.do("CancelExecution")
    assert (run.status("a"), run.state.status) == (NodeStatus.CANCELED, ExecutionStatus.CANCELED)


# --- Guards ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §9.1")
@pytest.mark.parametrize("made", [lambda: Run(chain("a"), started=False), running, waiting], ids=["new", "run", "wait"])
def test_cancel_is_taken_by_every_open_execution(made: Any) -> None:
    assert types(made().do("CancelExecution"))[0] == "EXECUTION_CANCEL_REQUESTED"


@pytest.mark.spec("003 §9.3")
@pytest.mark.parametrize("name", ["StartNode", "SucceedNode", "FailNode"])
def test_nodes_are_neither_started_nor_ended_after_a_cancel_request(name: str) -> None:
    assert refusal(canceling(), name, "a") is RejectionCode.CANCEL_REQUESTED


@pytest.mark.spec("003 §9.3")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELED"])
@pytest.mark.parametrize("name", ["StartNode", "SucceedNode", "FailNode"])
def test_nodes_are_neither_started_nor_ended_after_the_end(name: str, status: str) -> None:
    assert refusal(ended(status), name, "b") is RejectionCode.EXECUTION_TERMINAL


# --- Audit -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §11")
def test_both_times_of_a_cancel_are_kept() -> None:
    run = canceling()
    requested = run.now
    run.do("SucceedNode", "a", observed=True)
    assert (run.state.cancel_requested_at, run.state.canceled_at) == (requested, requested + timedelta(seconds=1))


@pytest.mark.spec("003 §11")
@pytest.mark.parametrize(("report", "fact"), [("SucceedNode", "NODE_SUCCEEDED"), ("FailNode", "NODE_FAILED")])
def test_an_observed_end_of_work_stays_in_the_log_after_a_cancel(report: str, fact: str) -> None:
    run = canceling()
    run.do(report, "a", observed=True)
    assert types(run.log)[-2:] == [fact, "EXECUTION_CANCELED"]


@pytest.mark.spec("003 §11")
def test_status_of_the_execution_comes_before_its_nodes() -> None:
    run = canceling()
    run.do("SucceedNode", "a", observed=True)
    written = state_to_dict(run.state)
    assert (written["status"], written["nodes"]["a"]["status"]) == ("CANCELED", "SUCCEEDED")


# --- The aggregate ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §12.1")
def test_aggregate_holds_what_its_log_says() -> None:
    state = canceling().state
    assert (state.execution_id, state.graph_id, state.status) == ("run-1", "g", ExecutionStatus.ACTIVE)
    assert (state.cancel_requested_at, state.version) == (T0 + timedelta(seconds=4), len(canceling().log))
    assert set(state.nodes) == {"s", "a", "b", "z"}


@pytest.mark.spec("003 §12.1")
def test_execution_goes_on_only_with_the_graph_it_was_created_from() -> None:
    run = running()
    run.graph = graph_from_dict(graph_to_dict(chain("a")) | {"graphId": "other"})
    assert refusal(run, "SucceedNode", "a") is RejectionCode.GRAPH_NOT_FOUND


@pytest.mark.parametrize(
    "made",
    [lambda: Run(chain("a"), started=False), running, waiting, canceling, lambda: ended("FAILED")],
    ids=["new", "running", "waiting", "canceling", "failed"],
)
def test_after_a_commit_nothing_is_left_to_follow(made: Any) -> None:
    run = made()
    assert orchestrate(run.graph, run.state, now=run.now, new_id=run.new_id) == []


@pytest.mark.spec("003 §12.2")
@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_order_of_two_ends_does_not_matter(order: tuple[str, str]) -> None:
    ends: dict[str, Event] = {"first": event("EXECUTION_FAILED"), "second": event("EXECUTION_COMPLETED")}
    state = fold([ends[name] for name in order], running().state)
    assert state.status is ExecutionStatus.FAILED

"""How a requested cancel converges, with and without waiting for workers."""

from collections.abc import Callable

import pytest

from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    CommandRejected,
    Event,
    EventType,
    ExecutionStatus,
    NodeStatus,
    RejectionCode,
    cancel_node,
    confirm_stopped,
    orchestrate,
)
from pyoco_server.core.orchestrator import NodeNotStoppableError
from tests.build import Run, chain, diamond, event, graph, payload, types

WORKER = Actor(ActorKind.EXTERNAL, "worker-1")
NOW = CancelMode.IMMEDIATE


def stopped(run: Run, node_id: str) -> list[Event]:
    """Commit the report of the worker that it has stopped."""
    return run.commit(confirm_stopped(run.graph, run.state, node_id, actor=WORKER, now=run.now, new_id=run.new_id))


def cancel_one(run: Run, node_id: str) -> list[Event]:
    """Commit the cancel of one node, as a policy does."""
    return run.commit(cancel_node(run.graph, run.state, node_id, actor=WORKER, now=run.now, new_id=run.new_id))


def sweep(run: Run, mode: CancelMode = CancelMode.WAIT_FOR_WORKERS) -> list[Event]:
    """Commit what follows from the state alone."""
    return run.commit(orchestrate(run.graph, run.state, now=run.now, new_id=run.new_id, cancel_mode=mode))


def about(events: list[Event], name: str) -> list[str]:
    """Return the nodes of the events of this type."""
    return [payload(found)["nodeId"] for found in events if found.type == name]


def ready() -> Run:
    return Run(chain("a", "b"))


def not_started() -> Run:
    return Run(chain("a", "b"), started=False)


def waiting() -> Run:
    run = ready()
    run.start("a")
    run.do("PutNodeWaiting", "a", waitKey="k")
    return run


def between_attempts() -> Run:
    run = Run(graph("s:Start a b z:Success", "s>a a>b b>z", a={"retries": 2}))
    run.fail("a")
    return run


def running() -> Run:
    run = Run(diamond("a", "b", "c"))
    run.do("StartNode", "a", workerId="w-a")
    run.start("b")
    return run


# --- No worker executes a node ---------------------------------------------------------------------------------------


@pytest.mark.spec("003 §5.1", "003 §8.3")
@pytest.mark.parametrize("made", [not_started, ready, waiting, between_attempts], ids=lambda made: made.__name__)
@pytest.mark.parametrize("mode", CancelMode)
def test_cancel_ends_at_once_when_no_worker_is_executing_a_node(made: Callable[[], Run], mode: CancelMode) -> None:
    run = made()
    commit = run.do("CancelExecution", cancel_mode=mode)
    assert (types(commit)[0], types(commit)[-1]) == ("EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED")
    assert run.state.status is ExecutionStatus.CANCELED
    assert about(commit, "NODE_INTERRUPT_REQUESTED") == []


@pytest.mark.spec("003 §5.2 rule 3", "003 §8.3")
def test_every_open_node_is_canceled_by_an_event_of_its_own() -> None:
    run = ready()
    open_nodes = {node_id for node_id, node in run.state.nodes.items() if not node.is_terminal}
    assert set(about(run.do("CancelExecution"), "NODE_CANCELED")) == open_nodes
    assert all(run.state.nodes[node_id].canceled_by_execution for node_id in open_nodes)


@pytest.mark.spec("003 §5.2 rule 3")
def test_results_are_kept_and_marked() -> None:
    run = ready()
    run.start("a")
    run.do("SucceedNode", "a", output={"n": 1})
    run.do("CancelExecution")
    node = run.state.nodes["a"]
    assert (node.status, node.output, node.cancellation_applied) == (NodeStatus.SUCCEEDED, {"n": 1}, True)


def test_every_event_of_the_cancel_has_its_reason() -> None:
    commit = ready().do("CancelExecution", reason="enough")
    assert {payload(found)["reason"] for found in commit} == {"enough"}


# --- Waiting for workers ---------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §8.3")
def test_work_in_progress_is_interrupted_and_waited_for() -> None:
    run = running()
    commit = run.do("CancelExecution")
    assert about(commit, "NODE_INTERRUPT_REQUESTED") == ["a", "b"]
    assert set(about(commit, "NODE_CANCELED")) == {"after", "c", "j", "z"}
    assert (run.state.status, run.status("a"), run.status("b")) == ("ACTIVE", "RUNNING", "RUNNING")


def test_interrupt_names_the_worker_if_it_is_known() -> None:
    commit = running().do("CancelExecution")
    interrupts = [payload(found) for found in commit if found.type == "NODE_INTERRUPT_REQUESTED"]
    assert interrupts == [{"nodeId": "a", "attempt": 1, "workerId": "w-a"}, {"nodeId": "b", "attempt": 1}]


@pytest.mark.spec("003 §8.3")
def test_last_worker_to_stop_ends_the_cancel() -> None:
    run = running()
    run.do("CancelExecution")
    assert types(stopped(run, "b")) == ["NODE_CANCELED"]
    assert types(stopped(run, "a")) == ["NODE_CANCELED", "EXECUTION_CANCELED"]
    assert run.state.nodes["a"].canceled_by_execution


def test_stop_is_recorded_on_behalf_of_the_worker() -> None:
    run = running()
    run.do("CancelExecution")
    assert stopped(run, "b")[0].actor == WORKER


@pytest.mark.parametrize(("report", "status"), [("SucceedNode", NodeStatus.SUCCEEDED), ("FailNode", NodeStatus.FAILED)])
@pytest.mark.spec("003 §5.2 rule 1", "003 §11")
def test_observed_end_of_work_is_recorded_and_the_execution_ends_canceled(report: str, status: NodeStatus) -> None:
    run = running()
    run.do("CancelExecution")
    run.do(report, "a", observed=True)
    stopped(run, "b")
    node = run.state.nodes["a"]
    assert (node.status, node.cancellation_applied) == (status, True)
    assert run.state.status is ExecutionStatus.CANCELED
    assert run.status("after") is NodeStatus.CANCELED


def test_last_observed_end_of_work_ends_the_cancel() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution")
    assert types(run.do("SucceedNode", "a", observed=True)) == ["NODE_SUCCEEDED", "EXECUTION_CANCELED"]


def test_failure_observed_after_the_cancel_is_not_tried_again() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"retries": 3}))
    run.start("a")
    run.do("CancelExecution")
    made = run.do("FailNode", "a", observed=True)
    assert types(made) == ["NODE_FAIL_REPORTED", "NODE_FAILED", "EXECUTION_CANCELED"]


@pytest.mark.parametrize("report", ["SucceedNode", "FailNode"])
@pytest.mark.spec("003 §9.3")
def test_result_from_outside_is_refused_after_a_cancel_request(report: str) -> None:
    run = running()
    run.do("CancelExecution")
    with pytest.raises(CommandRejected) as refused:
        run.do(report, "a")
    assert refused.value.code is RejectionCode.CANCEL_REQUESTED


# --- Not waiting -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §5.1")
def test_immediate_cancel_waits_for_no_worker() -> None:
    run = running()
    commit = run.do("CancelExecution", cancel_mode=NOW)
    assert about(commit, "NODE_INTERRUPT_REQUESTED") == ["a", "b"]
    assert run.state.status is ExecutionStatus.CANCELED
    assert run.status("a") is NodeStatus.CANCELED


def test_immediate_cancel_still_interrupts_before_it_cancels() -> None:
    commit = running().do("CancelExecution", cancel_mode=NOW)
    about_a = [found.type for found in commit if payload(found).get("nodeId") == "a"]
    assert about_a == ["NODE_INTERRUPT_REQUESTED", "NODE_CANCELED"]


def test_end_of_the_grace_period_ends_the_cancel_without_interrupting_twice() -> None:
    run = running()
    run.do("CancelExecution")
    made = sweep(run, NOW)
    assert types(made) == ["NODE_CANCELED", "NODE_CANCELED", "EXECUTION_CANCELED"]
    assert run.state.status is ExecutionStatus.CANCELED


# --- Repeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §9.1")
@pytest.mark.parametrize("made", [ready, running], ids=lambda made: made.__name__)
def test_second_cancel_adds_nothing(made: Callable[[], Run]) -> None:
    run = made()
    run.do("CancelExecution", reason="first")
    before = run.state
    assert run.do("CancelExecution", reason="second") == []
    assert run.state is before
    assert run.state.cancel_reason == "first"


def test_repeated_cancel_with_immediate_mode_ends_the_cancel() -> None:
    run = running()
    run.do("CancelExecution")
    assert types(run.do("CancelExecution", cancel_mode=NOW)) == ["NODE_CANCELED", "NODE_CANCELED", "EXECUTION_CANCELED"]


def test_interrupt_is_requested_once() -> None:
    run = running()
    run.do("CancelExecution")
    assert sweep(run) == []
    assert about(run.log, "NODE_INTERRUPT_REQUESTED") == ["a", "b"]


def test_attempt_interrupted_before_the_cancel_is_not_interrupted_again() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.commit([event("NODE_INTERRUPT_REQUESTED", nodeId="a")])
    assert "NODE_INTERRUPT_REQUESTED" not in types(run.do("CancelExecution"))
    assert types(stopped(run, "a")) == ["NODE_CANCELED", "EXECUTION_CANCELED"]


def test_converged_cancel_has_no_further_consequences() -> None:
    run = ready()
    run.do("CancelExecution")
    assert sweep(run) == []
    assert sweep(run, NOW) == []


def test_requested_cancel_without_consequences_is_converged_by_the_next_orchestrate() -> None:
    run = ready()
    run.commit([event("EXECUTION_CANCEL_REQUESTED")])
    sweep(run)
    assert run.state.status is ExecutionStatus.CANCELED


# --- One node --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §6.2")
@pytest.mark.parametrize(
    ("made", "interrupted"), [(ready, False), (waiting, False), (running, True)], ids=["ready", "waiting", "running"]
)
def test_one_node_can_be_canceled(made: Callable[[], Run], interrupted: bool) -> None:
    run = made()
    commit = cancel_one(run, "a")
    expected = ["NODE_CANCEL_REQUESTED", *(["NODE_INTERRUPT_REQUESTED"] if interrupted else []), "NODE_CANCELED"]
    assert types(commit)[: len(expected)] == expected
    assert not run.state.nodes["a"].canceled_by_execution
    assert not run.state.is_cancel_requested


def test_canceling_a_node_records_the_requester() -> None:
    commit = cancel_one(ready(), "a")
    assert (commit[0].type, commit[0].actor) == (EventType.NODE_CANCEL_REQUESTED, WORKER)


def test_canceling_the_last_running_node_of_a_canceling_execution_ends_the_cancel() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution")
    assert types(cancel_one(run, "a"))[-1] == "EXECUTION_CANCELED"
    assert run.state.nodes["a"].canceled_by_execution


def test_stop_after_an_interrupt_alone_cancels_the_node_only() -> None:
    """A policy interrupted the node: it ends canceled, and the graph decides what follows."""
    run = running()
    run.commit([event("NODE_INTERRUPT_REQUESTED", nodeId="a")])
    made = stopped(run, "a")
    assert (types(made)[0], types(made)[-1]) == ("NODE_CANCELED", "EXECUTION_FAILED")


NOT_STOPPABLE = [
    (ready, "ghost", "there is no node 'ghost'"),
    (ready, "s", "'s' is a Start"),
    (waiting, "z", "'z' is a Success"),
]


@pytest.mark.parametrize(("made", "node_id", "message"), NOT_STOPPABLE, ids=["unknown", "start", "end"])
@pytest.mark.parametrize("ask", [stopped, cancel_one])
def test_control_and_unknown_nodes_cannot_be_stopped(
    made: Callable[[], Run], node_id: str, message: str, ask: Callable[[Run, str], list[Event]]
) -> None:
    with pytest.raises(NodeNotStoppableError, match=message):
        ask(made(), node_id)


@pytest.mark.parametrize("ask", [stopped, cancel_one])
def test_node_that_ended_cannot_be_stopped(ask: Callable[[Run, str], list[Event]]) -> None:
    run = ready()
    run.succeed("a")
    with pytest.raises(NodeNotStoppableError, match="'a' has ended SUCCEEDED"):
        ask(run, "a")


@pytest.mark.parametrize("ask", [stopped, cancel_one])
def test_nothing_can_be_stopped_after_the_end(ask: Callable[[Run, str], list[Event]]) -> None:
    run = Run(chain("a", "b"))
    run.fail("a")
    with pytest.raises(NodeNotStoppableError, match="the execution has ended FAILED"):
        ask(run, "b")


def test_worker_that_was_replaced_cannot_confirm_that_it_stopped() -> None:
    run = running()
    run.do("StartNode", "a", attempt=2)
    run.commit([event("NODE_INTERRUPT_REQUESTED", nodeId="a")])
    with pytest.raises(NodeNotStoppableError, match="is at attempt 2, not 1"):
        confirm_stopped(run.graph, run.state, "a", actor=WORKER, now=run.now, new_id=run.new_id, attempt=1)


def test_worker_that_was_not_asked_to_stop_cannot_confirm_that_it_stopped() -> None:
    with pytest.raises(NodeNotStoppableError, match="was not asked to stop"):
        stopped(running(), "a")

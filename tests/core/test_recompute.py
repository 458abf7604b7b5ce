"""A lost result is computed again as an attempt in the log, and nothing else changes."""

from typing import Any

from pyoco_server.core import (
    Actor,
    ActorKind,
    Event,
    ExecutionState,
    NodeStatus,
    advance,
    fold,
    orchestrate,
    recompute,
    recompute_failed,
    recomputed,
)
from tests.build import T0, Ids, chain, command, types
from tests.invariants import check_log

GRAPH = chain("a", "b")
BY: dict[str, Any] = {"actor": Actor(ActorKind.SYSTEM, "w2"), "now": T0}


class Log:
    """An execution whose task ``a`` has succeeded and whose task ``b`` runs."""

    def __init__(self) -> None:
        self.ids, self.events = Ids(), list[Event]()
        self.do("CreateExecution", graphId="g")
        self.do("StartExecution")
        self.do("StartNode", "a", attempt=1, workerId="w1")
        self.do("SucceedNode", "a", output={"output_kind": "lost"})
        self.do("StartNode", "b", attempt=1, workerId="w1")

    @property
    def state(self) -> ExecutionState:
        return fold(self.events) if self.events else ExecutionState(execution_id="run-1")

    def do(self, name: str, node_id: str | None = None, **fields: Any) -> None:
        self.events += advance(GRAPH, self.state, command(name, node_id, **fields), now=T0, new_id=self.ids)

    def take(self, events: list[Event]) -> list[Event]:
        self.events += events
        check_log(GRAPH, self.events, self.state)
        return events

    def begin(self, node_id: str = "a") -> list[Event]:
        return self.take(recompute(self.state, node_id, worker_id="w2", new_id=self.ids, **BY))

    def end(self, attempt: int, output: dict[str, Any]) -> list[Event]:
        given = {"attempt": attempt, "output": output, "new_id": self.ids, **BY}
        return self.take(recomputed(self.state, "a", **given))

    def fail(self, attempt: int) -> list[Event]:
        given = {"attempt": attempt, "error": {"code": "X"}, "new_id": self.ids, **BY}
        return self.take(recompute_failed(self.state, "a", **given))


def test_recomputing_is_another_attempt_and_the_node_stays_succeeded() -> None:
    log = Log()
    assert types(log.begin()) == ["NODE_STARTED"]
    node = log.state.nodes["a"]
    assert (node.status, node.attempt, node.worker_id) == (NodeStatus.SUCCEEDED, 2, "w2")
    assert types(log.end(2, {"value": 1})) == ["NODE_SUCCEEDED"]
    node = log.state.nodes["a"]
    assert (node.status, node.output) == (NodeStatus.SUCCEEDED, {"value": 1, "attempt": 2})
    assert orchestrate(GRAPH, log.state, now=T0, new_id=log.ids) == []
    log.do("SucceedNode", "b")
    assert log.state.status == "COMPLETED"


def test_a_recomputed_output_is_recorded_even_if_it_is_the_same() -> None:
    log = Log()
    for attempt in (2, 3):
        log.begin()
        assert types(log.end(attempt, {"output_kind": "lost"})) == ["NODE_SUCCEEDED"]
    assert (log.state.nodes["a"].output or {})["attempt"] == 3


def test_an_attempt_that_fails_leaves_the_node_succeeded() -> None:
    log = Log()
    log.begin()
    assert types(log.fail(2)) == ["NODE_FAIL_REPORTED"]
    node = log.state.nodes["a"]
    assert (node.status, node.failed_attempt, node.error) == (NodeStatus.SUCCEEDED, 2, {"code": "X"})
    assert log.fail(2) == []
    assert types(log.begin()) == ["NODE_STARTED"]


def test_an_attempt_that_another_replaced_changes_nothing() -> None:
    log = Log()
    log.begin()
    log.begin()
    assert log.end(2, {"value": 1}) == []
    assert log.fail(2) == []
    assert types(log.end(3, {"value": 1})) == ["NODE_SUCCEEDED"]


def test_only_a_succeeded_node_is_recomputed() -> None:
    log = Log()
    assert log.begin("b") == []
    assert log.begin("none") == []


def test_no_recomputation_starts_after_a_cancel_request_but_its_end_is_recorded() -> None:
    log = Log()
    log.begin()
    log.do("CancelExecution")
    assert log.begin() == []
    assert types(log.end(2, {"value": 1})) == ["NODE_SUCCEEDED"]


def test_nothing_is_recomputed_in_an_ended_run() -> None:
    log = Log()
    log.begin()
    log.do("SucceedNode", "b")
    assert log.begin() == []
    assert log.end(2, {"value": 1}) == []
    assert log.fail(2) == []

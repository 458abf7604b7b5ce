"""Drives random graphs with random commands, and checks the invariants after every step."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from pyoco_server.core import (
    CancelMode,
    CommandRejected,
    CommandType,
    EventType,
    ExecutionState,
    Graph,
    NodeStatus,
    cancel_node,
    confirm_stopped,
    orchestrate,
)
from pyoco_server.core.events import Actor, ActorKind
from pyoco_server.core.orchestrator import NodeNotStoppableError
from pyoco_server.core.state import initial_state
from tests.build import Run
from tests.invariants import check_log, check_state, check_step
from tests.properties.graphs import runnable_graphs

pytestmark = pytest.mark.timeout(600)  # one test of many seconds: on a busy machine it takes minutes

WORKERS = st.sampled_from([None, "w1", "w2"])
ATTEMPTS = st.sampled_from([None, None, None, 1, 2, 3])
TEXTS = st.sampled_from([None, "why"])
ENDINGS = st.sampled_from([CommandType.SUCCEED_NODE] * 3 + [CommandType.FAIL_NODE, CommandType.PUT_NODE_WAITING])
MODES = st.sampled_from(CancelMode)
ENGINE = Actor(ActorKind.SYSTEM, "engine")


def given_fields(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class Executions(RuleBasedStateMachine):
    """Any of the 12 commands, and the engine's own calls, at any moment, for any node."""

    run: Run
    checked: int
    replayed: ExecutionState

    @initialize(graph=runnable_graphs)
    def create(self, graph: Graph) -> None:
        self.run = Run(graph, started=False)
        self.pick = sorted(graph.nodes)
        self.checked, self.replayed = 0, initial_state(self.run.state.execution_id)

    def attempt(self, name: CommandType, node_id: str | None = None, **fields: Any) -> None:
        """Give a command; if it is refused, nothing may have changed."""
        before, length = self.run.state, len(self.run.log)
        refusal = None
        try:
            self.run.do(name.value, node_id, **fields)
        except CommandRejected as rejected:
            refusal = rejected
        if refusal is not None:
            assert (refusal.command.type, bool(refusal.fact)) == (name, True)
            assert self.run.state is before
            assert len(self.run.log) == length

    def node(self, data: st.DataObject) -> str:
        """Draw mostly a live node, sometimes any."""
        live = sorted(node.node_id for node in self.run.state.live_nodes())
        return data.draw(st.sampled_from(live * 3 + self.pick))

    @rule()
    def start_execution(self) -> None:
        self.attempt(CommandType.START_EXECUTION)

    @rule()
    def create_again(self) -> None:
        self.attempt(CommandType.CREATE_EXECUTION, graphId=self.run.graph.graph_id)

    @rule(data=st.data(), attempt=ATTEMPTS, worker=WORKERS)
    def start_node(self, data: st.DataObject, attempt: int | None, worker: str | None) -> None:
        self.attempt(CommandType.START_NODE, self.node(data), **given_fields(attempt=attempt, workerId=worker))

    @rule(data=st.data(), ending=ENDINGS)
    def work(self, data: st.DataObject, ending: CommandType) -> None:
        """Give a command that is accepted: without this rule, few executions would make progress."""
        live = sorted(self.run.state.live_nodes(), key=lambda node: node.node_id)
        if not live or self.run.state.is_cancel_requested:
            return
        node = data.draw(st.sampled_from(live))
        if node.status is NodeStatus.WAITING:
            self.attempt(CommandType.RESUME_NODE, node.node_id)
        elif node.is_at_work:
            self.attempt(ending, node.node_id)
        else:
            self.attempt(CommandType.START_NODE, node.node_id)

    @rule(data=st.data(), ending=ENDINGS)
    def work_more(self, data: st.DataObject, ending: CommandType) -> None:
        self.work(data, ending)

    @rule(data=st.data(), ending=ENDINGS)
    def work_still_more(self, data: st.DataObject, ending: CommandType) -> None:
        self.work(data, ending)

    @rule(data=st.data(), attempt=ATTEMPTS, observed=st.booleans())
    def succeed_node(self, data: st.DataObject, attempt: int | None, observed: bool) -> None:
        fields = given_fields(attempt=attempt, output={"value": 1})
        self.attempt(CommandType.SUCCEED_NODE, self.node(data), observed=observed, **fields)

    @rule(data=st.data(), attempt=ATTEMPTS, observed=st.booleans(), retryable=st.booleans())
    def fail_node(self, data: st.DataObject, attempt: int | None, observed: bool, retryable: bool) -> None:
        fields = given_fields(attempt=attempt, error={"message": "broke"}, retryable=retryable)
        self.attempt(CommandType.FAIL_NODE, self.node(data), observed=observed, **fields)

    @rule(data=st.data(), progress=st.integers(0, 100))
    def report_progress(self, data: st.DataObject, progress: int) -> None:
        self.attempt(CommandType.REPORT_NODE_PROGRESS, self.node(data), progress=progress)

    @rule(data=st.data(), key=TEXTS)
    def put_waiting(self, data: st.DataObject, key: str | None) -> None:
        self.attempt(CommandType.PUT_NODE_WAITING, self.node(data), **given_fields(waitKey=key))

    @rule(data=st.data())
    def request_resume(self, data: st.DataObject) -> None:
        self.attempt(CommandType.REQUEST_RESUME_NODE, self.node(data))

    @rule(data=st.data(), key=TEXTS)
    def resume(self, data: st.DataObject, key: str | None) -> None:
        self.attempt(CommandType.RESUME_NODE, self.node(data), **given_fields(resumeKey=key))

    @rule(data=st.data())
    def mark_ready(self, data: st.DataObject) -> None:
        self.attempt(CommandType.MARK_NODE_READY, self.node(data))

    @precondition(lambda self: len(self.run.log) > 25)
    @rule(reason=TEXTS, mode=MODES)
    def cancel(self, reason: str | None, mode: CancelMode) -> None:
        self.attempt(CommandType.CANCEL_EXECUTION, cancel_mode=mode, **given_fields(reason=reason))

    @rule()
    def archive(self) -> None:
        self.attempt(CommandType.ARCHIVE_EXECUTION)

    @precondition(lambda self: len(self.run.log) > 25)
    @rule(data=st.data())
    def cancel_one_node(self, data: st.DataObject) -> None:
        self.engine_call(cancel_node, self.node(data))

    @rule(data=st.data())
    def report_stopped(self, data: st.DataObject) -> None:
        self.engine_call(confirm_stopped, self.node(data))

    @rule(mode=MODES)
    def sweep(self, mode: CancelMode) -> None:
        run = self.run
        run.commit(orchestrate(run.graph, run.state, now=run.now, new_id=run.new_id, cancel_mode=mode))

    def engine_call(self, call: Any, node_id: str) -> None:
        run = self.run
        with contextlib.suppress(NodeNotStoppableError):
            run.commit(call(run.graph, run.state, node_id, actor=ENGINE, now=run.now, new_id=run.new_id))

    @invariant()
    def holds(self) -> None:
        """Check the new events; :meth:`teardown` checks the whole log."""
        for event in self.run.log[self.checked :]:
            self.replayed = check_step(self.replayed, event)
        self.checked = len(self.run.log)
        assert self.replayed == self.run.state
        check_state(self.run.graph, self.run.state)

    @override
    def teardown(self) -> None:
        """Check that the execution can still be brought to its end."""
        if hasattr(self, "run"):
            finish(self.run)
            check_log(self.run.graph, self.run.log, self.run.state)
            if EventType.EXECUTION_CANCEL_REQUESTED in {event.type for event in self.run.log}:
                assert self.run.state.status == "CANCELED"


def finish(run: Run) -> None:
    """Make each node advance until the execution has ended."""
    if run.state.started_at is None and not run.state.is_cancel_requested and not run.state.is_terminal:
        run.do("StartExecution")
    for _ in range(20 * len(run.graph.nodes)):
        if run.state.is_terminal:
            return
        node = min(run.state.live_nodes(), key=lambda live: live.node_id)
        if run.state.is_cancel_requested:
            run.commit(
                confirm_stopped(run.graph, run.state, node.node_id, actor=ENGINE, now=run.now, new_id=run.new_id)
            )
        elif node.status is NodeStatus.WAITING:
            run.do("ResumeNode", node.node_id)
        elif node.is_at_work:
            run.do("SucceedNode", node.node_id)
        else:
            run.do("StartNode", node.node_id)
    raise AssertionError(f"the execution cannot be brought to its end: {run.state.live_nodes()}")


Executions.TestCase.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestExecutions = Executions.TestCase

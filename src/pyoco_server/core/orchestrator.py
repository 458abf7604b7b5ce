"""The orchestrator: what follows from what happened.

It watches nodes end and draws the consequences the graph prescribes: the next nodes become ready, forks open, joins
pass, the execution completes, fails, or converges on a cancel. It runs to a fixed point, so the events of a command and
all their consequences make one commit, and whoever handles the command does the orchestrating.

There are two ways in. :func:`orchestrate` looks at the whole graph. :func:`advance` knows which events just happened
and looks only at what they touch, so a step costs the same in a graph of ten nodes and of ten thousand. Both end in the
same place: after ``advance``, ``orchestrate`` finds nothing to do.
"""

from collections import deque
from collections.abc import Container, Iterable
from datetime import datetime
from typing import Final

from pyoco_server.core.cancelling import CancelMode, conclude, converge
from pyoco_server.core.commands import Command
from pyoco_server.core.draft import Draft
from pyoco_server.core.events import Actor, Event, NewId, Stamp
from pyoco_server.core.failing import Fatal, fail_execution, foreclose, stop_node
from pyoco_server.core.graph import Graph, GraphNode, Losers, NodeType
from pyoco_server.core.handler import CommandRejected, RejectionCode, handle
from pyoco_server.core.joins import Fate, Tally, Verdict
from pyoco_server.core.payloads import (
    ExecutionCancelRequested,
    ExecutionCompleted,
    ExecutionCreated,
    ExecutionStarted,
    ForkOpened,
    JoinGateUpdated,
    JoinPassed,
    JoinPolicy,
    NodeCanceled,
    NodeCancelRequested,
    NodeCreated,
    NodeFailed,
    NodeReady,
    NodeStarted,
    NodeSucceeded,
)
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import NodeStatus
from pyoco_server.core.wire import timestamp
from pyoco_server.errors import PyocoServerError

EVERY_UPDATE_UP_TO: Final = 256
"""Joins with more branches record their gate at every doubling and when it decides, not at every branch: the event
lists all branches, so recording each of n would cost n squared."""


class NodeNotStoppableError(PyocoServerError, ValueError):
    """There is nothing to stop: the node is unknown or has ended, or nobody was asked to stop it."""


def orchestrate(
    graph: Graph,
    state: ExecutionState,
    *,
    now: datetime | str,
    new_id: NewId,
    cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    cause: Event | None = None,
) -> list[Event]:
    """Return everything that follows from ``state``; nothing, if all consequences are drawn already."""
    stamp = Stamp(
        execution_id=state.execution_id,
        now=timestamp(now),
        new_id=new_id,
        correlation_id=cause.correlation_id if cause else None,
    )
    work = _Work(graph, Draft(state, stamp), cancel_mode)
    work.consider_everything(cause)
    return work.finish()


def advance(
    graph: Graph,
    state: ExecutionState,
    command: Command,
    *,
    now: datetime | str,
    new_id: NewId,
    cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    observed: bool = False,
) -> list[Event]:
    """Handle ``command`` and draw every consequence: the commit, as a list of events.

    Raises :class:`CommandRejected` if a guard refuses; ``observed`` is explained at :func:`handle`.
    """
    now = timestamp(now)
    graph_ids: Container[str] = {graph.graph_id}
    if state.graph_id is not None and state.graph_id not in graph_ids:
        raise CommandRejected(
            RejectionCode.GRAPH_NOT_FOUND,
            command,
            f"the execution runs on graph '{state.graph_id}', not '{graph.graph_id}'",
            {"graphId": state.graph_id},
        )
    events = handle(state, command, now=now, new_id=new_id, observed=observed, graph_ids=graph_ids)
    stamp = Stamp(execution_id=state.execution_id, now=now, new_id=new_id, correlation_id=command.correlation_id)
    work = _Work(graph, Draft(state, stamp), cancel_mode)
    work.consider(events)
    return work.finish()


def cancel_node(
    graph: Graph,
    state: ExecutionState,
    node_id: str,
    *,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
    reason: str | None = None,
    correlation_id: str | None = None,
) -> list[Event]:
    """Cancel one node, not the execution, and draw the consequences.

    No command does this; it is for policies, such as a limit on how long a branch may take.
    """
    _check_stoppable(state, node_id)
    stamp = Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id, correlation_id=correlation_id)
    work = _Work(graph, Draft(state, stamp), CancelMode.WAIT_FOR_WORKERS)
    work.cancel([state.nodes[node_id]], reason, None, actor=actor)
    return work.finish()


def confirm_stopped(
    graph: Graph,
    state: ExecutionState,
    node_id: str,
    *,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
    reason: str | None = None,
    correlation_id: str | None = None,
) -> list[Event]:
    """Record that a node asked to stop has stopped without a result; the last one ends the cancel."""
    _check_stoppable(state, node_id)
    if state.nodes[node_id].interrupted_attempt == 0:
        raise NodeNotStoppableError(f"node '{node_id}' was not asked to stop")
    stamp = Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id, correlation_id=correlation_id)
    draft = Draft(state, stamp)
    event = draft.emit(NodeCanceled(node_id=node_id, reason=reason), None, actor=actor)
    if state.is_cancel_requested:
        conclude(draft, event)
        return draft.events
    work = _Work(graph, draft, CancelMode.WAIT_FOR_WORKERS)
    work.ended(node_id, event)
    return work.finish()


def _check_stoppable(state: ExecutionState, node_id: str) -> None:
    node = state.nodes.get(node_id)
    if node is None:
        raise NodeNotStoppableError(f"there is no node '{node_id}'")
    if state.is_terminal or node.is_terminal:
        raise NodeNotStoppableError(f"node '{node_id}' has ended {node.status}")


class _Work:
    """One run to the fixed point: the draft, and the nodes whose end has not been followed up yet."""

    def __init__(self, graph: Graph, draft: Draft, cancel_mode: CancelMode) -> None:
        self._graph = graph
        self._draft = draft
        self._cancel_mode = cancel_mode
        self._ended: deque[tuple[str, Event | None]] = deque()
        self._last: Event | None = None
        self._converged = False

    # --- What to look at ---------------------------------------------------------------------------------------------

    def consider(self, events: Iterable[Event]) -> None:
        """Take events, and remember what they call for."""
        for event in events:
            self._draft.extend([event])
            self._last = event
            match event.payload:
                case ExecutionCreated():
                    self._create_nodes(event)
                case ExecutionStarted():
                    self._create_nodes(event)
                    self._enter_if_idle(self._graph.start, event)
                case ExecutionCancelRequested():
                    self._converge(event)
                case NodeSucceeded(node_id=node_id) | NodeFailed(node_id=node_id):
                    self.ended(node_id, event)
                case _:  # nothing else has consequences of its own
                    pass

    def consider_everything(self, cause: Event | None) -> None:
        """Look at the whole graph, as somebody must who does not know what happened last."""
        self._last = cause
        state = self._draft.state
        if not state.exists or state.is_terminal:
            return
        if state.is_cancel_requested:
            self._converge(cause)
            return
        self._create_nodes(cause)
        if state.started_at is None:
            return
        self._enter_if_idle(self._graph.start, cause)
        for node_id in self._graph.order:
            node = self._draft.state.nodes[node_id]
            if node.is_terminal:
                self.ended(node_id, cause)

    def ended(self, node_id: str, event: Event | None) -> None:
        """Remember that a node has ended."""
        if node_id in self._graph.nodes:  # nodes made while the execution runs belong to whoever made them
            self._ended.append((node_id, event))

    def finish(self) -> list[Event]:
        """Draw all consequences and return the commit."""
        while self._ended and self._may_go_on():
            self._follow_up(*self._ended.popleft())
        state = self._draft.state
        if state.is_cancel_requested and not state.is_terminal:
            if not self._converged:
                conclude(self._draft, self._last)
        elif self._may_go_on() and state.started_at is not None and state.counts.live == 0:
            self._emit_last(ExecutionCompleted())
        return self._draft.events

    def _emit_last(self, payload: ExecutionCompleted) -> None:
        self._draft.emit(payload, self._draft.events[-1] if self._draft.events else self._last)

    def _may_go_on(self) -> bool:
        state = self._draft.state
        return not state.is_terminal and not state.is_cancel_requested

    # --- Creation and entry ------------------------------------------------------------------------------------------

    def _create_nodes(self, cause: Event | None) -> None:
        for node_id in self._graph.order:
            if node_id not in self._draft.state.nodes:
                node = self._graph.nodes[node_id]
                self._draft.emit(
                    NodeCreated(node_id=node_id, node_type=node.node_type, meta=self._graph.meta(node_id)),
                    cause,
                )

    def _enter_if_idle(self, node_id: str, cause: Event | None) -> None:
        if self._draft.state.nodes[node_id].status is NodeStatus.IDLE:
            self._enter(self._graph.nodes[node_id], cause)

    def _enter(self, node: GraphNode, cause: Event | None) -> None:
        """A node is reached: work becomes ready, control nodes run their course at once."""
        ready = self._draft.emit(NodeReady(node_id=node.node_id), cause)
        match node.node_type:
            case NodeType.START | NodeType.SUCCESS:
                self._pass_through(node, ready)
            case NodeType.FORK:
                heads = tuple(edge.target for edge in self._graph.outgoing(node.node_id))
                self._pass_through(node, ready, ForkOpened(node_id=node.node_id, branch_ids=heads))
            case NodeType.JOIN:
                self._pass_through(node, ready, JoinPassed(node_id=node.node_id))
                if node.losers is Losers.CANCEL:
                    self._cancel_losers(node.node_id, ready)
            case NodeType.FAILED:
                self._reach_failure(node, ready)
            case NodeType.CANCELED:
                reason = f"the execution reached '{node.node_id}'"
                requested = self._draft.emit(ExecutionCancelRequested(reason=reason), ready)
                self._converge(requested)
            case _:  # work: somebody has to start it
                pass

    def _pass_through(self, node: GraphNode, ready: Event, mark: ForkOpened | JoinPassed | None = None) -> None:
        cause = self._draft.emit(NodeStarted(node_id=node.node_id, attempt=1), ready)
        if mark is not None:
            cause = self._draft.emit(mark, cause)
        self.ended(node.node_id, self._draft.emit(NodeSucceeded(node_id=node.node_id, attempt=1), cause))

    def _reach_failure(self, node: GraphNode, ready: Event) -> None:
        started = self._draft.emit(NodeStarted(node_id=node.node_id, attempt=1), ready)
        error = {"code": "FAILED_END", "message": f"the execution reached '{node.node_id}'"}
        failed = self._draft.emit(NodeFailed(node_id=node.node_id, attempt=1, error=error), started)
        fail_execution(self._draft, node.node_id, failed)

    # --- Following up an end -----------------------------------------------------------------------------------------

    def _follow_up(self, node_id: str, cause: Event | None) -> None:
        node = self._draft.state.nodes[node_id]
        edges = self._graph.outgoing(node_id)
        for edge in edges:
            if self._graph.nodes[edge.target].is_join:
                self._record_gate(edge.target, cause)
        if node.skip is None and any(node.fate(edge.on) is not Fate.TAKEN for edge in edges):
            outcome = foreclose(self._graph, self._draft.state, node)
            if isinstance(outcome, Fatal):
                fail_execution(self._draft, outcome.node_id, cause)
                return
            for skipped, skip in outcome.nodes:
                event = self._draft.emit(
                    NodeCanceled(node_id=skipped, reason=_why_skipped(skip.by, self._draft.state), skip=skip),
                    cause,
                )
                self.ended(skipped, event)
        for edge in edges:
            self._try_to_enter(edge.target, took=node.fate(edge.on) is Fate.TAKEN, cause=cause)
            if not self._may_go_on():
                return

    def _try_to_enter(self, target: str, *, took: bool, cause: Event | None) -> None:
        if self._draft.state.nodes[target].status is not NodeStatus.IDLE:
            return
        node = self._graph.nodes[target]
        if node.is_end:
            passes = took
        else:
            tally = self._draft.state.tallies.get(target)
            passes = took if tally is None else self._graph.rule(target).verdict(tally) is Verdict.PASSES
        if passes:
            self._enter(node, cause)

    # --- Joins -------------------------------------------------------------------------------------------------------

    def _record_gate(self, join: str, cause: Event | None) -> None:
        tally = self._draft.state.tallies.get(join)
        if tally is None:
            return
        verdict = self._graph.rule(join).verdict(tally)
        gate = self._draft.state.join_gates.get(join)
        if gate is not None:
            told = len(gate.completed_branches) + len(gate.failed_branches) + len(gate.canceled_branches)
            dropped = tally.inputs - len(gate.expected_branches)
            if tally.settled == told + dropped or not self._worth_telling(tally, told, verdict, gate.is_passable):
                return
        self._draft.emit(self._gate(join, is_passable=verdict is Verdict.PASSES), cause)

    def _worth_telling(self, tally: Tally, told: int, verdict: Verdict, passable: bool) -> bool:  # noqa: FBT001
        if tally.inputs <= EVERY_UPDATE_UP_TO or tally.pending == 0:
            return True
        decided = verdict is Verdict.BLOCKED or (verdict is Verdict.PASSES and not passable)
        return decided or tally.settled >= 2 * max(told, 1)

    def _gate(self, join: str, *, is_passable: bool) -> JoinGateUpdated:
        told: dict[Fate | None, list[str]] = {None: []} | {fate: [] for fate in Fate}
        names = self._graph.branches(join)
        for edge, name in zip(self._graph.incoming(join), names, strict=True):
            told[self._draft.state.nodes[edge.source].fate(edge.on)].append(name)
        dropped = frozenset(told[Fate.DROPPED])
        return JoinGateUpdated(
            node_id=join,
            expected_branches=tuple(name for name in names if name not in dropped),
            completed_branches=tuple(told[Fate.TAKEN]),
            failed_branches=tuple(told[Fate.FAILED] + told[Fate.ISOLATED]),
            canceled_branches=tuple(told[Fate.CANCELED]),
            policy=self._graph.nodes[join].policy or JoinPolicy.ALL_SUCCESS,
            is_passable=is_passable,
        )

    def _cancel_losers(self, join: str, cause: Event) -> None:
        """Cancel what is still under way, or yet to come, and leads nowhere but to this join."""
        tally = self._draft.state.tallies.get(join)
        if tally is None or tally.pending == 0:
            return
        losers = self._only_for(join)
        self.cancel(losers, f"'{join}' was passed without it", cause)

    def _only_for(self, join: str) -> list[NodeState]:
        leading_on: dict[str, int] = {}
        found: list[NodeState] = []
        behind = deque([join])
        while behind:
            for edge in self._graph.incoming(behind.popleft()):
                left = leading_on.get(edge.source, len(self._graph.outgoing(edge.source))) - 1
                leading_on[edge.source] = left
                node = self._draft.state.nodes[edge.source]
                if left == 0 and not node.is_terminal:
                    found.append(node)
                    behind.append(edge.source)
        return found

    # --- Cancelling --------------------------------------------------------------------------------------------------

    def cancel(
        self,
        nodes: Iterable[NodeState],
        reason: str | None,
        cause: Event | None,
        *,
        actor: Actor | None = None,
    ) -> None:
        """Cancel these nodes, and remember that they ended."""
        for node in nodes:
            request = NodeCancelRequested(node_id=node.node_id, reason=reason)
            asked = self._draft.emit(request, cause, actor=actor) if actor else self._draft.emit(request, cause)
            self.ended(node.node_id, stop_node(self._draft, node, reason, asked))

    def _converge(self, cause: Event | None) -> None:
        self._ended.clear()
        self._converged = True
        converge(self._draft, cause, self._cancel_mode)


def _why_skipped(node_id: str, state: ExecutionState) -> str:
    status = state.nodes[node_id].status
    return f"cannot run: '{node_id}' ended {status}"

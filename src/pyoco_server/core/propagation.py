"""What follows from an event: the next nodes become ready, joins pass, the execution ends, a cancel converges.

:class:`Propagation` takes the events of one command and adds all their consequences to a draft, until nothing more
follows. :mod:`~pyoco_server.core.orchestrator` has the functions that callers use; ``failure_propagation`` decides
which nodes can never run after a failure.

A requested cancel *converges* (:func:`converge`) in one of two modes. *Waiting for workers*: the nodes that a worker is
executing are asked to stop, all others are canceled, and the execution is canceled when no worker executes any of its
nodes. *Immediate*: everything is canceled at once; this is for the end of the grace period, or a caller that does not
wait.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, auto, unique
from typing import Final

import msgspec

from pyoco_server.core.commit import Draft
from pyoco_server.core.events import ORCHESTRATOR, Actor, Event
from pyoco_server.core.failure_propagation import Fatal, fail_execution, interrupt_node, propagate_failure, stop_node
from pyoco_server.core.graph import Edge, Graph, GraphNode, Losers, NodeType
from pyoco_server.core.joins import EdgeTally, Fate, Verdict
from pyoco_server.core.node_reducers import recount_edges
from pyoco_server.core.payloads import (
    EdgeOn,
    ExecutionCanceled,
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
    Skip,
    SkipKind,
)
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import NodeStatus


@unique
class CancelMode(Enum):
    """Whether a cancel waits for work in progress to stop."""

    WAIT_FOR_WORKERS = auto()
    IMMEDIATE = auto()


def converge(draft: Draft, cause: Event | None, mode: CancelMode) -> None:
    """Cancel, or ask to stop, every open node of an execution whose cancel was requested. Looks at all nodes."""
    reason = draft.state.cancel_reason
    open_nodes = [node for node in draft.state.nodes.values() if not node.is_terminal]
    for node in sorted(open_nodes, key=lambda open_node: open_node.node_id):
        if mode is CancelMode.IMMEDIATE or not node.is_at_work:
            stop_node(draft, node, reason, cause)
        else:
            interrupt_node(draft, node, reason, cause)
    conclude(draft, cause)


def conclude(draft: Draft, cause: Event | None) -> None:
    """Record the end of a cancel if no node is running."""
    if draft.state.counts.running == 0 and not draft.state.is_terminal:
        draft.emit(ExecutionCanceled(reason=draft.state.cancel_reason), cause)


# --- Nodes created without their place in the graph ------------------------------------------------------------------
# Another program may have written NODE_CREATED with only a node's id and type. Before it goes to work, the orchestrator
# takes the places of such nodes from the graph. A log that this package wrote needs none of this.


def has_graph_position(graph: Graph, state: ExecutionState) -> bool:
    """Does every node of the graph exist and have its place? Comparing counts is enough: only a graph gives places."""
    return state.placed >= len(graph.nodes)


def assign_graph_positions(graph: Graph, state: ExecutionState) -> ExecutionState:
    """Return the state with every node of the graph in its place; the same object if all places are there already."""
    if not state.nodes or has_graph_position(graph, state):
        return state
    nodes = state.nodes.mutate()
    for node_id, node in state.nodes.items():
        if node_id in graph.nodes:
            nodes[node_id] = node.placed(graph.place(node_id))
    return recount_edges(msgspec.structs.replace(state, nodes=nodes.finish()))


# --- Consequences ----------------------------------------------------------------------------------------------------

EVERY_UPDATE_UP_TO: Final = 256
"""Joins with more branches record their gate at every doubling and when it decides, not at every branch: the event
lists all branches, so recording each of n would cost n squared."""


_ON_SUCCESS: Final = frozenset({EdgeOn.SUCCESS, EdgeOn.ALWAYS})


class Propagation:
    """One run to the fixed point: the draft, and the nodes whose end has not been followed up."""

    def __init__(
        self,
        graph: Graph,
        draft: Draft,
        *,
        cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
        cause: Event | None = None,
    ) -> None:
        self._graph = graph
        self._draft = draft
        self._cancel_mode = cancel_mode
        self._cause = cause
        self._ended: deque[tuple[str, Event | None]] = deque()
        self._converged = False

    # --- What to look at ---------------------------------------------------------------------------------------------

    def consider(self, events: Iterable[Event]) -> None:
        """Add events to the draft, and note the ends whose consequences :meth:`finish` must add."""
        state = self._draft.state
        if state.nodes and not has_graph_position(self._graph, state) and self._may_continue():
            self._create_nodes(None)  # another program wrote the start of this log, and perhaps not all nodes
        for event in events:
            self._draft.take(event)
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
                case _:  # other events have no consequences
                    pass

    def consider_everything(self) -> None:
        """Look at the whole graph, for a caller that does not know which events happened last."""
        cause = self._cause
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
        """Note that a node has ended."""
        if node_id in self._graph.nodes:  # what follows a node made by a block is decided by the block
            self._ended.append((node_id, event))

    def finish(self) -> list[Event]:
        """Add all consequences, and return the events of the commit."""
        while self._ended and self._may_continue():
            self._follow_up(*self._ended.popleft())
        state = self._draft.state
        if state.is_cancel_requested and not state.is_terminal:
            if not self._converged:
                conclude(self._draft, self._latest())
        elif self._may_continue() and self._has_started() and state.counts.live == 0:
            self._draft.emit(ExecutionCompleted(), self._latest())
        return self._draft.events

    def _has_started(self) -> bool:
        start = self._draft.state.nodes.get(self._graph.start)
        return self._draft.state.started_at is not None and start is not None and start.is_terminal

    def _latest(self) -> Event | None:
        return self._draft.events[-1] if self._draft.events else self._cause

    def _may_continue(self) -> bool:
        state = self._draft.state
        return not state.is_terminal and not state.is_cancel_requested

    # --- Creation and entry ------------------------------------------------------------------------------------------

    def _create_nodes(self, cause: Event | None) -> None:
        for node_id in self._graph.order:
            if node_id not in self._draft.state.nodes:
                node_type, meta = self._graph.nodes[node_id].node_type, self._graph.place_as_json(node_id)
                self._draft.emit(NodeCreated(node_id=node_id, node_type=node_type, meta=meta), cause)

    def _enter_if_idle(self, node_id: str, cause: Event | None) -> None:
        if self._draft.state.nodes[node_id].status is NodeStatus.IDLE:
            self._enter(self._graph.nodes[node_id], cause)

    def _enter(self, node: GraphNode, cause: Event | None) -> None:
        """Make a node ready; a control node runs and ends at once."""
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
            case _:  # work: a worker has to start it
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
        if self._may_doom(node, edges):
            outcome = propagate_failure(self._graph, self._draft.state, node)
            if isinstance(outcome, Fatal):
                self._record_doomed_gates(outcome.doomed, cause)
                fail_execution(self._draft, outcome.node_id, cause)
                return
            for skipped, skip in outcome.doomed.items():
                event = self._draft.emit(
                    NodeCanceled(node_id=skipped, reason=_why_skipped(skip.by, self._draft.state), skip=skip),
                    cause,
                )
                self.ended(skipped, event)
        for edge in edges:
            self._try_to_enter(edge.target, took=node.fate(edge.on) is Fate.TAKEN, cause=cause)
            if not self._may_continue():
                return

    def _may_doom(self, node: NodeState, edges: Iterable[Edge]) -> bool:
        """Can the end of ``node`` keep others from running? A cheap test, false in the common case.

        It cannot if all its edges were taken and none leads to a node where branches meet.
        """
        tallies = self._draft.state.tallies
        return any(node.fate(edge.on) is not Fate.TAKEN or edge.target in tallies for edge in edges)

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
            if node.is_join:
                self._record_gate(target, cause)
            self._enter(node, cause)

    # --- Joins -------------------------------------------------------------------------------------------------------

    def _record_gate(self, join: str, cause: Event | None) -> None:
        tally = self._draft.state.tallies.get(join)
        if tally is None:  # the log names other edges than the graph has
            return
        verdict = self._graph.rule(join).verdict(tally)
        gate = self._draft.state.join_gates.get(join)
        if gate is not None:
            recorded = len(gate.completed_branches) + len(gate.failed_branches) + len(gate.canceled_branches)
            dropped = tally.inputs - len(gate.expected_branches)
            is_known = tally.settled == recorded + dropped
            if is_known or not self._is_worth_recording(tally, recorded, verdict, gate.is_passable):
                return
        self._draft.emit(self._gate(join, {}, is_passable=verdict is Verdict.PASSES), cause)

    def _record_doomed_gates(self, doomed: Mapping[str, Skip], cause: Event | None) -> None:
        """Record the joins that a failure passed on its way to the end: their branch has failed, too."""
        reached = {edge.target: None for node_id in doomed for edge in self._graph.outgoing(node_id)}
        for join in reached:
            if self._graph.nodes[join].is_join and self._draft.state.nodes[join].status is NodeStatus.IDLE:
                self._draft.emit(self._gate(join, doomed, is_passable=False), cause)

    def _is_worth_recording(
        self,
        tally: EdgeTally,
        recorded: int,
        verdict: Verdict,
        passable: bool,  # noqa: FBT001
    ) -> bool:
        if tally.inputs <= EVERY_UPDATE_UP_TO or tally.pending == 0:
            return True
        decided = verdict is Verdict.BLOCKED or (verdict is Verdict.PASSES and not passable)
        return decided or tally.settled >= 2 * max(recorded, 1)

    def _gate(self, join: str, doomed: Mapping[str, Skip], *, is_passable: bool) -> JoinGateUpdated:
        by_fate: dict[Fate | None, list[str]] = {None: []} | {fate: [] for fate in Fate}
        names = self._graph.branches(join)
        for edge, name in zip(self._graph.incoming(join), names, strict=True):
            by_fate[self._fate(join, edge, doomed)].append(name)
        dropped = frozenset(by_fate[Fate.DROPPED])
        return JoinGateUpdated(
            node_id=join,
            expected_branches=tuple(name for name in names if name not in dropped),
            completed_branches=tuple(by_fate[Fate.TAKEN]),
            failed_branches=tuple(by_fate[Fate.FAILED] + by_fate[Fate.ISOLATED]),
            canceled_branches=tuple(by_fate[Fate.CANCELED]),
            policy=self._graph.nodes[join].policy or JoinPolicy.ALL_SUCCESS,
            is_passable=is_passable,
        )

    def _fate(self, join: str, edge: Edge, doomed: Mapping[str, Skip]) -> Fate | None:
        """Return how an edge counts in the gate; a branch that was cancelled because the join passed is CANCELED."""
        if edge.source in doomed:
            return Fate(doomed[edge.source].counts_as.value)
        source = self._draft.state.nodes[edge.source]
        lost = source.skip is not None and source.skip.by == join
        return Fate.CANCELED if lost else source.fate(edge.on)

    def _cancel_losers(self, join: str, cause: Event) -> None:
        """Cancel the nodes that have not ended and lead only to this join, which has passed."""
        tally = self._draft.state.tallies.get(join)
        if tally is None or tally.pending == 0:
            return
        reason, skip = f"'{join}' was passed without it", Skip(join, SkipKind.DROPPED)
        self.cancel(self._only_for(join), reason, cause, skip=skip)

    def _only_for(self, join: str) -> list[NodeState]:
        leading_on: dict[str, int] = {}
        found: list[NodeState] = []
        behind = deque([join])
        while behind:
            for edge in self._graph.incoming(behind.popleft()):
                if edge.on not in _ON_SUCCESS:
                    continue
                left = leading_on.get(edge.source)
                if left is None:
                    left = sum(way_on.on in _ON_SUCCESS for way_on in self._graph.outgoing(edge.source))
                left -= 1
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
        actor: Actor = ORCHESTRATOR,
        skip: Skip | None = None,
    ) -> None:
        """Cancel these nodes, and note that they ended."""
        for node in nodes:
            request = NodeCancelRequested(node_id=node.node_id, reason=reason)
            asked = self._draft.emit(request, cause, actor=actor)
            self.ended(node.node_id, stop_node(self._draft, node, reason, asked, skip=skip))

    def _converge(self, cause: Event | None) -> None:
        self._ended.clear()
        self._converged = True
        converge(self._draft, cause, self._cancel_mode)


def _why_skipped(node_id: str, state: ExecutionState) -> str:
    return f"cannot run: '{node_id}' ended {state.nodes[node_id].status}"

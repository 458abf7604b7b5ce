"""Drawing the consequences: one run from what happened to the point where nothing more follows."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from pyoco_server.core.cancelling import CancelMode, conclude, converge
from pyoco_server.core.draft import Draft
from pyoco_server.core.events import ORCHESTRATOR, Actor, Event
from pyoco_server.core.failing import Fatal, fail_execution, foreclose, stop_node
from pyoco_server.core.graph import Edge, Graph, GraphNode, Losers, NodeType
from pyoco_server.core.joins import Fate, Tally, Verdict
from pyoco_server.core.payloads import (
    EdgeOn,
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
from pyoco_server.core.placing import is_situated
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import NodeStatus

EVERY_UPDATE_UP_TO: Final = 256
"""Joins with more branches record their gate at every doubling and when it decides, not at every branch: the event
lists all branches, so recording each of n would cost n squared."""


_ON_SUCCESS: Final = frozenset({EdgeOn.SUCCESS, EdgeOn.ALWAYS})


class Consequences:
    """One run to the fixed point: the draft, and the nodes whose end has not been followed up yet."""

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
        """Take events, and remember what they call for."""
        state = self._draft.state
        if state.nodes and not is_situated(self._graph, state) and self._may_go_on():
            self._create_nodes(None)  # somebody else wrote the beginning of this log, and perhaps not all of it
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
                case _:  # nothing else has consequences of its own
                    pass

    def consider_everything(self) -> None:
        """Look at the whole graph, as somebody must who does not know what happened last."""
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
                conclude(self._draft, self._latest())
        elif self._may_go_on() and self._has_begun() and state.counts.live == 0:
            self._draft.emit(ExecutionCompleted(), self._latest())
        return self._draft.events

    def _has_begun(self) -> bool:
        start = self._draft.state.nodes.get(self._graph.start)
        return self._draft.state.started_at is not None and start is not None and start.is_terminal

    def _latest(self) -> Event | None:
        return self._draft.events[-1] if self._draft.events else self._cause

    def _may_go_on(self) -> bool:
        state = self._draft.state
        return not state.is_terminal and not state.is_cancel_requested

    # --- Creation and entry ------------------------------------------------------------------------------------------

    def _create_nodes(self, cause: Event | None) -> None:
        for node_id in self._graph.order:
            if node_id not in self._draft.state.nodes:
                node_type, meta = self._graph.nodes[node_id].node_type, self._graph.told_place(node_id)
                self._draft.emit(NodeCreated(node_id=node_id, node_type=node_type, meta=meta), cause)

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
        if self._may_foreclose(node, edges):
            outcome = foreclose(self._graph, self._draft.state, node)
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
            if not self._may_go_on():
                return

    def _may_foreclose(self, node: NodeState, edges: Iterable[Edge]) -> bool:
        """Not so if all edges were taken and none leads to where branches meet: the common case, and cheap to tell."""
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
        if tally is None:  # a log that names other edges than the graph has
            return
        verdict = self._graph.rule(join).verdict(tally)
        gate = self._draft.state.join_gates.get(join)
        if gate is not None:
            told = len(gate.completed_branches) + len(gate.failed_branches) + len(gate.canceled_branches)
            dropped = tally.inputs - len(gate.expected_branches)
            if tally.settled == told + dropped or not self._worth_telling(tally, told, verdict, gate.is_passable):
                return
        self._draft.emit(self._gate(join, {}, is_passable=verdict is Verdict.PASSES), cause)

    def _record_doomed_gates(self, doomed: Mapping[str, Skip], cause: Event | None) -> None:
        """Tell of the joins a failure reached on its way to the end: their branch has failed, too."""
        reached = {edge.target: None for node_id in doomed for edge in self._graph.outgoing(node_id)}
        for join in reached:
            if self._graph.nodes[join].is_join and self._draft.state.nodes[join].status is NodeStatus.IDLE:
                self._draft.emit(self._gate(join, doomed, is_passable=False), cause)

    def _worth_telling(self, tally: Tally, told: int, verdict: Verdict, passable: bool) -> bool:  # noqa: FBT001
        if tally.inputs <= EVERY_UPDATE_UP_TO or tally.pending == 0:
            return True
        decided = verdict is Verdict.BLOCKED or (verdict is Verdict.PASSES and not passable)
        return decided or tally.settled >= 2 * max(told, 1)

    def _gate(self, join: str, doomed: Mapping[str, Skip], *, is_passable: bool) -> JoinGateUpdated:
        told: dict[Fate | None, list[str]] = {None: []} | {fate: [] for fate in Fate}
        names = self._graph.branches(join)
        for edge, name in zip(self._graph.incoming(join), names, strict=True):
            told[self._fate(join, edge, doomed)].append(name)
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

    def _fate(self, join: str, edge: Edge, doomed: Mapping[str, Skip]) -> Fate | None:
        """How an edge shows in the gate; a branch cancelled because the join was passed without it shows as such."""
        if edge.source in doomed:
            return Fate(doomed[edge.source].counts_as.value)
        source = self._draft.state.nodes[edge.source]
        lost = source.skip is not None and source.skip.by == join
        return Fate.CANCELED if lost else source.fate(edge.on)

    def _cancel_losers(self, join: str, cause: Event) -> None:
        """Cancel what is still under way, or yet to come, and leads nowhere but to this join."""
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
        """Cancel these nodes, and remember that they ended."""
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

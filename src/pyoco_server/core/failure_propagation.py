"""Which nodes can never run after the end of another one, and whether the execution fails because of it.

When a node ends, its edges that do not follow its outcome are *dead*. A node that waits for a dead edge can never run,
so its own edges are dead, too, and so on, up to a join that can do without the branch. If a dead edge leads to an end
of the graph, and it is dead because of a failure or a cancel, the execution fails.

:func:`propagate_failure` follows the dead edges without making an event, because the result decides what is recorded:
skipped nodes, if the execution continues; otherwise the failure of the execution, and nodes that were never reached
stay IDLE. The functions at the end record that failure, and stop nodes.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pyoco_server.core.commit import Draft
from pyoco_server.core.events import Event
from pyoco_server.core.graph import Graph, NodeFailPolicy
from pyoco_server.core.joins import FATAL, EdgeTally, Fate, Verdict
from pyoco_server.core.payloads import (
    EdgeOn,
    ExecutionFailed,
    NodeCanceled,
    NodeInterruptRequested,
    Skip,
    SkipKind,
)
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import NodeStatus

_FAILURES: Final = {NodeStatus.FAILED: "failed", NodeStatus.CANCELED: "was canceled"}


class Fatal(msgspec.Struct, frozen=True):
    """The execution fails because of ``node_id``; ``doomed`` are the nodes that cannot run because of it."""

    node_id: str
    doomed: Mapping[str, Skip]


class Skipped(msgspec.Struct, frozen=True):
    """These nodes can never run, each because of the node its skip names."""

    doomed: Mapping[str, Skip]


def propagate_failure(graph: Graph, state: ExecutionState, node: NodeState) -> Fatal | Skipped:
    """Return which nodes can never run after the end of ``node``. Looks only at the nodes behind it."""
    unhandled = node.fate(EdgeOn.SUCCESS) is Fate.FAILED
    if unhandled and graph.nodes[node.node_id].fail_policy is NodeFailPolicy.STOP:
        return Fatal(node.node_id, {})
    walk = _DeadEdgeWalk(graph, state)
    for edge in graph.outgoing(node.node_id):
        fate = node.fate(edge.on)
        if fate is None or fate is Fate.TAKEN:
            walk.check(edge.target)
        else:
            walk.arrive(edge.target, Skip(node.skip.by if node.skip else node.node_id, SkipKind(fate.value)))
    return walk.run()


class _DeadEdgeWalk:
    """Follows dead edges from node to node."""

    def __init__(self, graph: Graph, state: ExecutionState) -> None:
        self._graph = graph
        self._state = state
        self._tallies: dict[str, EdgeTally] = {}
        self._blame: dict[tuple[str, SkipKind], str] = {}
        self._doomed: dict[str, Skip] = {}
        self._open: list[str] = []
        self._fatal: str | None = None

    def run(self) -> Fatal | Skipped:
        while self._open and self._fatal is None:
            node_id = self._open.pop()
            skip = self._doomed[node_id]
            for edge in self._graph.outgoing(node_id):
                self._settle(edge.target, skip)
                self.arrive(edge.target, skip)
        if self._fatal is not None:
            return Fatal(self._fatal, self._doomed)
        return Skipped(self._doomed)

    def arrive(self, target: str, skip: Skip) -> None:
        """A dead edge leads to ``target``: doom it, end the walk as fatal, or stop at a join that absorbs the edge."""
        if target in self._doomed:
            return
        if not self._is_idle(target):
            if skip.counts_as in FATAL and self._reaches_end(target):
                self._fatal = skip.by
            return
        if self._graph.nodes[target].is_end:
            if skip.counts_as in FATAL:
                self._fatal = skip.by
            return
        tally = self._tally(target)
        if tally is None:
            self._doom(target, skip)
        elif self._is_blocked(target, tally):
            self._doom(target, self._worst(target, tally, skip))

    def check(self, target: str) -> None:
        """A taken edge leads to ``target``: doom it if that was the last edge and its predicate does not hold."""
        tally = self._state.tallies.get(target)
        if tally is not None and self._is_idle(target) and self._is_blocked(target, tally):
            self._doom(target, self._worst(target, tally, Skip(target, SkipKind.FAILED)))

    def _reaches_end(self, node_id: str) -> bool:
        """Does a path without a join lead from a node that started before its inputs were settled to an end?

        What follows that node is not doomed, since it may still succeed; the failure before it fails the execution.
        """
        if self._state.nodes[node_id].status is NodeStatus.CANCELED:
            return False  # its own end has been propagated already
        stack, seen = [node_id], {node_id}
        while stack:
            node = self._graph.nodes[stack.pop()]
            if node.is_end:
                return True
            if not node.is_join:
                ahead = {edge.target for edge in self._graph.outgoing(node.node_id)} - seen
                seen |= ahead
                stack.extend(ahead)
        return False

    def _is_blocked(self, target: str, tally: EdgeTally) -> bool:
        return self._graph.rule(target).verdict(tally) is Verdict.BLOCKED

    def _doom(self, target: str, skip: Skip) -> None:
        self._doomed[target] = skip
        self._open.append(target)

    def _settle(self, target: str, skip: Skip) -> None:
        """Count the edge of a doomed node, which no event has settled."""
        tally = self._tally(target)
        if tally is not None:
            self._tallies[target] = tally.plus(Fate(skip.counts_as.value))
            self._blame.setdefault((target, skip.counts_as), skip.by)

    def _tally(self, target: str) -> EdgeTally | None:
        """Return the target's tally with the doomed edges counted in; None if it has only one edge."""
        found = self._tallies.get(target) or self._state.tallies.get(target)
        if found is None:
            node = self._state.nodes[target]
            return EdgeTally(node.inputs) if node.is_tallied else None
        return found

    def _worst(self, target: str, tally: EdgeTally, skip: Skip) -> Skip:
        """Return how the target counts for its successors: as the worst of its edges, in whatever order they came."""
        worst = tally.worst()
        if worst is skip.counts_as or worst is SkipKind.DROPPED:
            return skip
        blamed = self._blame.get((target, worst))
        if blamed is not None:
            return Skip(blamed, worst)
        sources = ((self._state.nodes[edge.source], edge.on) for edge in self._graph.incoming(target))
        culprit = next(source for source, on in sources if source.fate(on) == worst.value)
        return Skip(culprit.skip.by if culprit.skip else culprit.node_id, worst)

    def _is_idle(self, node_id: str) -> bool:
        return self._state.nodes[node_id].status is NodeStatus.IDLE


def fail_execution(draft: Draft, node_id: str, cause: Event | None) -> None:
    """Record that the execution failed at ``node_id``, and stop all other live nodes."""
    failed = draft.state.nodes[node_id]
    for node in sorted(draft.state.live_nodes(), key=lambda live: live.node_id):
        stop_node(draft, node, f"the execution failed at '{node_id}'", cause)
    verb = _FAILURES.get(failed.status, "can never pass")
    draft.emit(
        ExecutionFailed(reason=f"node '{node_id}' {verb}", failed_node_id=node_id, error=failed.error),
        cause,
    )


def stop_node(
    draft: Draft, node: NodeState, reason: str | None, cause: Event | None, *, skip: Skip | None = None
) -> Event:
    """Cancel one node at once; if a worker is executing it, ask the worker to stop."""
    if node.is_at_work:
        interrupt_node(draft, node, reason, cause)
    return draft.emit(NodeCanceled(node_id=node.node_id, reason=reason, skip=skip), cause)


def interrupt_node(draft: Draft, node: NodeState, reason: str | None, cause: Event | None) -> None:
    """Ask the worker that executes the node to stop, unless it was asked already."""
    if node.interrupted_attempt < node.attempt:
        draft.emit(
            NodeInterruptRequested(node_id=node.node_id, attempt=node.attempt, worker_id=node.worker_id, reason=reason),
            cause,
        )

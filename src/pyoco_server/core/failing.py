"""What the end of one node forecloses for others.

When a node ends, edges that do not follow its outcome are dead. Death travels: a node that waits for a dead edge cannot
run, so its own edges die, and so on, until a join that can do without the branch absorbs it. If it gets as far as an
end of the graph, and it is the death of a failure or a cancel, the execution fails. The journey is worked out here
first, without an event, because its result decides what is recorded: nodes skipped (the execution goes on) or the
failure of the execution (and then nodes never reached stay what they are, never reached).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pyoco_server.core.draft import Draft
from pyoco_server.core.events import Event
from pyoco_server.core.graph import FailPolicy, Graph
from pyoco_server.core.joins import FATAL, Fate, Tally, Verdict
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
    """The execution cannot go on; ``node_id`` is where that began, ``doomed`` what it took with it on the way."""

    node_id: str
    doomed: Mapping[str, Skip]


class Skipped(msgspec.Struct, frozen=True):
    """These nodes can never run, each because of the node its skip names."""

    doomed: Mapping[str, Skip]


def foreclose(graph: Graph, state: ExecutionState, node: NodeState) -> Fatal | Skipped:
    """Work out what the end of ``node`` makes impossible. Looks only at what lies behind it."""
    unhandled = node.fate(EdgeOn.SUCCESS) is Fate.FAILED
    if unhandled and graph.nodes[node.node_id].fail_policy is FailPolicy.STOP:
        return Fatal(node.node_id, {})
    journey = _Journey(graph, state)
    for edge in graph.outgoing(node.node_id):
        fate = node.fate(edge.on)
        if fate is None or fate is Fate.TAKEN:
            journey.check(edge.target)
        else:
            journey.arrive(edge.target, Skip(node.skip.by if node.skip else node.node_id, SkipKind(fate.value)))
    return journey.run()


class _Journey:
    """Follows dead edges from node to node."""

    def __init__(self, graph: Graph, state: ExecutionState) -> None:
        self._graph = graph
        self._state = state
        self._tallies: dict[str, Tally] = {}
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
        """Death reached ``target``: it ends here, or the target is doomed, or the execution is."""
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
        """A branch came in, and may have been the last one a predicate waited for in vain."""
        tally = self._state.tallies.get(target)
        if tally is not None and self._is_idle(target) and self._is_blocked(target, tally):
            self._doom(target, self._worst(target, tally, Skip(target, SkipKind.FAILED)))

    def _reaches_end(self, node_id: str) -> bool:
        """Is there a way from a node that was set going out of turn to an end, with no join on it to absorb anything?

        What it leads to is not doomed, since it may still succeed; but a failure before it is a failure all the same.
        """
        if self._state.nodes[node_id].status is NodeStatus.CANCELED:
            return False  # it is dead; what follows from that was worked out when it died
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

    def _is_blocked(self, target: str, tally: Tally) -> bool:
        return self._graph.rule(target).verdict(tally) is Verdict.BLOCKED

    def _doom(self, target: str, skip: Skip) -> None:
        self._doomed[target] = skip
        self._open.append(target)

    def _settle(self, target: str, skip: Skip) -> None:
        """Count the edge of a doomed node, which no event has settled yet."""
        tally = self._tally(target)
        if tally is not None:
            self._tallies[target] = tally.plus(Fate(skip.counts_as.value))
            self._blame.setdefault((target, skip.counts_as), skip.by)

    def _tally(self, target: str) -> Tally | None:
        """The target's tally with the doomed edges counted in; None if it has but one edge."""
        found = self._tallies.get(target) or self._state.tallies.get(target)
        if found is None:
            node = self._state.nodes[target]
            return Tally(node.inputs) if node.is_tallied else None
        return found

    def _worst(self, target: str, tally: Tally, skip: Skip) -> Skip:
        """How the target counts further on: as the worst of what kept it from running, whoever came last."""
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
    """Record that the execution failed at ``node_id``, and stop whatever else is under way."""
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
    """Cancel one node at once; if somebody is at work on it, tell them."""
    if node.is_at_work:
        interrupt_node(draft, node, reason, cause)
    return draft.emit(NodeCanceled(node_id=node.node_id, reason=reason, skip=skip), cause)


def interrupt_node(draft: Draft, node: NodeState, reason: str | None, cause: Event | None) -> None:
    """Ask whoever is at work on the node to stop, unless they were asked already."""
    if node.interrupted_attempt < node.attempt:
        draft.emit(
            NodeInterruptRequested(node_id=node.node_id, attempt=node.attempt, worker_id=node.worker_id, reason=reason),
            cause,
        )

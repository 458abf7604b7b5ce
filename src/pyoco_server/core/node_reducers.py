"""The reducer's other half: what each event of one node does to that node, and to the sums that depend on it.

``NODE_EVENT_STEPS`` at the end is the table that ``reducer.reduce`` looks up. Two helpers come first:

* ``ScratchNodes`` folds many events without a new map for each: the node map is changed in place, because no caller
  sees the states in between.
* ``settle_edges`` keeps the tallies: how many edges of each kind lead to a node where branches meet.
"""

from collections.abc import Callable, ItemsView
from typing import Any, Final, cast

import msgspec
from immutables import Map, MapMutation

from pyoco_server.core.events import Event
from pyoco_server.core.joins import EdgeTally
from pyoco_server.core.payloads import (
    NodeCanceled,
    NodeCancelRequested,
    NodeFailed,
    NodeFailReported,
    NodeInterruptRequested,
    NodePayload,
    NodeProgressReported,
    NodeReady,
    NodeResumed,
    NodeResumeRequested,
    NodeStarted,
    NodeSucceeded,
    NodeWaiting,
    Payload,
)
from pyoco_server.core.state import Counts, ExecutionState, NodeState
from pyoco_server.core.transitions import (
    NODE_PROPOSALS,
    STEPS_DOWN,
    TERMINAL_NODE,
    NodeStatus,
    choose_node_status,
)

FEW: int = 16
"""Up to this many events, folding in place saves no time."""


class ScratchNodes:
    """A map with the methods of the persistent map that the reducer uses; it changes in place."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Map[str, NodeState]) -> None:
        self._nodes: MapMutation[str, NodeState] = nodes.mutate()

    def get(self, node_id: str) -> NodeState | None:
        """Return the node, or None."""
        return self._nodes.get(node_id)

    def set(self, node_id: str, node: NodeState) -> "ScratchNodes":
        """Put a node, and return this map."""
        self._nodes[node_id] = node
        return self

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def items(self) -> ItemsView[str, NodeState]:
        """Return all nodes as they are now."""
        return cast("ItemsView[str, NodeState]", self._settle().items())

    def mutate(self) -> MapMutation[str, NodeState]:
        """Return a copy that can be changed."""
        return self._settle().mutate()

    def finish(self) -> Map[str, NodeState]:
        """Return the persistent map of all nodes."""
        return self._nodes.finish()

    def _settle(self) -> Map[str, NodeState]:
        settled = self._nodes.finish()
        self._nodes = settled.mutate()
        return settled


def scratch(nodes: Map[str, NodeState]) -> Map[str, NodeState]:
    """Return a map to fold many events into; :func:`finished` makes it persistent again."""
    return cast("Map[str, NodeState]", ScratchNodes(nodes))


def finished(nodes: Map[str, NodeState]) -> Map[str, NodeState]:
    """Return the persistent map, whether or not the given one is scratch."""
    held: object = nodes
    return held.finish() if isinstance(held, ScratchNodes) else nodes


def settle_edges(state: ExecutionState, old: NodeState, new: NodeState) -> Map[str, EdgeTally]:
    """Return the tallies after a node's status changed from that of ``old`` to that of ``new``.

    A higher rank can replace one terminal status by another, so what ``old`` had settled is subtracted.
    """
    tallies = state.tallies
    for edge in new.edges:
        if not edge.meets:
            continue
        tally = tallies.get(edge.to) or _empty(state, edge.to)
        for fate, change in ((old.fate(edge.on), -1), (new.fate(edge.on), 1)):
            if fate is not None:
                tally = tally.plus(fate, change)
        tallies = tallies.set(edge.to, tally)
    return tallies


def _empty(state: ExecutionState, node_id: str) -> EdgeTally:
    target = state.nodes.get(node_id)
    return EdgeTally(target.inputs if target else 0)


def recount_edges(state: ExecutionState) -> ExecutionState:
    """Return the state with its tallies counted again from its nodes."""
    counted = msgspec.structs.replace(state, tallies=Map())
    for node in state.nodes.values():
        if node.is_terminal and node.edges:
            untouched = NodeState(node_id=node.node_id, node_type=node.node_type)
            counted = msgspec.structs.replace(counted, tallies=settle_edges(counted, untouched, node))
    return counted


_replace: Final = msgspec.structs.replace
NodeStep = Callable[[ExecutionState, Event, Any, NodeState], ExecutionState]


def _node_record(state: ExecutionState, _: Event, __: NodePayload, ___: NodeState) -> ExecutionState:
    return _replace(state, version=state.version + 1)


def _node_moved(state: ExecutionState, event: Event, _: NodeReady, node: NodeState) -> ExecutionState:
    return _move(state, event, node)


def _node_resumed(state: ExecutionState, event: Event, payload: NodeResumed, node: NodeState) -> ExecutionState:
    if node.status is not NodeStatus.WAITING:
        return state
    return _move(state, event, node, resumption=payload.extra)


def _node_started(state: ExecutionState, event: Event, payload: NodeStarted, node: NodeState) -> ExecutionState:
    worker_id = node.worker_id if payload.worker_id is None else payload.worker_id
    fresh = {"progress": None, "progress_message": None} if payload.attempt > node.attempt else {}
    return _move(state, event, node, attempt=payload.attempt, worker_id=worker_id, **fresh)


def _node_progressed(state: ExecutionState, _: Event, payload: NodeProgressReported, node: NodeState) -> ExecutionState:
    reported = _replace(
        node,
        progress=node.progress if payload.progress is None else payload.progress,
        progress_message=node.progress_message if payload.message is None else payload.message,
    )
    return _put(state, reported)


def _node_waiting(state: ExecutionState, event: Event, payload: NodeWaiting, node: NodeState) -> ExecutionState:
    wait_key = node.wait_key if payload.wait_key is None else payload.wait_key
    prompt = node.prompt if payload.prompt is None else payload.prompt
    return _move(state, event, node, wait_key=wait_key, prompt=prompt, resumption=None)


def _node_succeeded(state: ExecutionState, event: Event, payload: NodeSucceeded, node: NodeState) -> ExecutionState:
    output = node.output if payload.output is None else payload.output
    return _move(state, event, node, output=output)


def _node_fail_reported(state: ExecutionState, _: Event, payload: NodeFailReported, node: NodeState) -> ExecutionState:
    attempt = payload.attempt or node.attempt
    reported = _replace(
        node,
        error=node.error if payload.error is None else payload.error,
        failed_attempt=max(node.failed_attempt, attempt),
        failures=node.failures + (attempt > node.failed_attempt),  # an attempt that is reported twice failed once
    )
    return _put(state, reported)


def _node_failed(state: ExecutionState, event: Event, payload: NodeFailed, node: NodeState) -> ExecutionState:
    error = node.error if payload.error is None else payload.error
    return _move(state, event, node, error=error)


def _node_canceled(state: ExecutionState, event: Event, payload: NodeCanceled, node: NodeState) -> ExecutionState:
    if node.status is NodeStatus.CANCELED:
        return state
    by_execution = state.is_cancel_requested
    return _move(state, event, node, skip=payload.skip, canceled_by_execution=by_execution)


def _node_interrupted(state: ExecutionState, _: Event, __: NodeInterruptRequested, node: NodeState) -> ExecutionState:
    return _put(state, _replace(node, interrupted_attempt=node.attempt))


def _put(state: ExecutionState, node: NodeState) -> ExecutionState:
    """Replace a node whose status did not change."""
    return _replace(state, nodes=state.nodes.set(node.node_id, node), version=state.version + 1)


def _move(state: ExecutionState, event: Event, node: NodeState, **changes: object) -> ExecutionState:
    """Apply a node event: its status by rank, its other fields as given."""
    proposal = NODE_PROPOSALS.get(event.type)
    if proposal is None:
        status = STEPS_DOWN.get((node.status, event.type), node.status)
    else:
        status = choose_node_status(node.status, proposal)
    moved = _replace(node, status=status, **changes)
    if status is node.status:
        return state if moved == node else _put(state, moved)
    nodes = state.nodes.set(node.node_id, moved)
    return _replace(
        state,
        nodes=nodes,
        counts=recount(state.counts, node.status, status),
        tallies=settle_edges(state, node, moved) if status in TERMINAL_NODE and moved.edges else state.tallies,
        version=state.version + 1,
    )


_COUNT_OF: Final = {status: status.value.lower() for status in NodeStatus}


def recount(counts: Counts, old: NodeStatus | None, new: NodeStatus) -> Counts:
    """Return the counts after a node went from one status to another, or was created (``old`` is None)."""
    entering = _COUNT_OF[new]
    changes = {entering: getattr(counts, entering) + 1}
    if old is not None:
        leaving = _COUNT_OF[old]
        changes[leaving] = getattr(counts, leaving) - 1
    return _replace(counts, **changes)


NODE_EVENT_STEPS: Final[dict[type[Payload], NodeStep]] = {
    NodeReady: _node_moved,
    NodeStarted: _node_started,
    NodeProgressReported: _node_progressed,
    NodeWaiting: _node_waiting,
    NodeResumeRequested: _node_record,
    NodeResumed: _node_resumed,
    NodeSucceeded: _node_succeeded,
    NodeFailReported: _node_fail_reported,
    NodeFailed: _node_failed,
    NodeCancelRequested: _node_record,
    NodeCanceled: _node_canceled,
    NodeInterruptRequested: _node_interrupted,
}

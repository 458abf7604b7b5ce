"""What each event does to the node it speaks of."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from pyoco_server.core.events import Event
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
from pyoco_server.core.tallies import settle_edges
from pyoco_server.core.transitions import (
    NODE_PROPOSALS,
    STEPS_DOWN,
    TERMINAL_NODE,
    NodeStatus,
    choose_node_status,
)

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
        failures=node.failures + (attempt > node.failed_attempt),  # told twice, an attempt has still failed once
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
    """Take a node whose status did not change."""
    return _replace(state, nodes=state.nodes.set(node.node_id, node), version=state.version + 1)


def _move(state: ExecutionState, event: Event, node: NodeState, **changes: object) -> ExecutionState:
    """Take a node event: its status by rank, its other fields as given."""
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
    """The counts after a node went from one status to another, or came into being."""
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

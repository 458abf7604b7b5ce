"""The reducer: fold one event into a state. Pure, total over the 24 events, and the only writer of states.

Three things an event can do here: *change* the state; leave a *record* that changes no status (requests, reports,
audit marks); or be *refused*, and then the very same state comes back. Refused are events of another schema version,
progress after a cancel request, events of a stale attempt, and whatever would change nothing (a lower rank, a step of a
node that does not exist, a second creation). ``version`` counts the first two kinds.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from immutables import Map

from pyoco_server.core.events import SCHEMA_VERSION, Event
from pyoco_server.core.joins import Tally
from pyoco_server.core.payloads import (
    AttemptPayload,
    ExecutionArchived,
    ExecutionCanceled,
    ExecutionCancelRequested,
    ExecutionCompleted,
    ExecutionCreated,
    ExecutionFailed,
    ExecutionFailRequested,
    ExecutionStarted,
    ForkOpened,
    JoinGateUpdated,
    JoinPassed,
    NodeCanceled,
    NodeCancelRequested,
    NodeCreated,
    NodeFailed,
    NodeFailReported,
    NodeInterruptRequested,
    NodeMeta,
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
from pyoco_server.core.state import Counts, ExecutionState, JoinGate, NodeState, initial_state
from pyoco_server.core.transitions import (
    EXECUTION_PROPOSALS,
    IGNORED_AFTER_CANCEL,
    IGNORED_WHEN_TERMINAL,
    NODE_PROPOSALS,
    STEPS_DOWN,
    TERMINAL_NODE,
    ExecutionStatus,
    NodeStatus,
    choose_exec_status,
    choose_node_status,
)
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError

_replace: Final = msgspec.structs.replace


class ForeignEventError(PyocoServerError, ValueError):
    """An event of one execution was folded into another: the caller mixed up its logs."""


def reduce(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state after ``event``; the same object if the event is refused."""
    if event.execution_id != state.execution_id:
        raise ForeignEventError(
            f"event {event.event_id} belongs to execution '{event.execution_id}', not '{state.execution_id}'"
        )
    if event.schema_version != SCHEMA_VERSION:
        return state
    payload = event.payload
    if state.cancel_requested_at is not None and payload.type in IGNORED_AFTER_CANCEL:
        return state
    if payload.type in IGNORED_WHEN_TERMINAL and state.is_terminal:
        return state
    if isinstance(payload, AttemptPayload) and _is_stale(state, payload):
        return state
    return _APPLY[type(payload)](state, event, payload)


def _is_stale(state: ExecutionState, payload: AttemptPayload) -> bool:
    """Does the event come from an attempt that another has replaced? This is the fence."""
    node = state.nodes.get(payload.node_id)
    return node is not None and payload.attempt is not None and payload.attempt < node.attempt


def fold(events: Iterable[Event], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all ``events``, from the beginning or on top of ``state``."""
    for event in events:
        if state is None:
            state = initial_state(event.execution_id)
        state = reduce(state, event)
    if state is None:
        raise ValueError("an empty log belongs to no execution: pass the state to start from")
    return state


# --- Execution lifecycle ---------------------------------------------------------------------------------------------
# Payload types differ per function, so the parameters are typed where they are used and the table below is checked by
# a test to hold all 24.


def _created(state: ExecutionState, event: Event, payload: ExecutionCreated) -> ExecutionState:
    if state.exists:
        return state
    return _step(state, event, graph_id=payload.graph_id, created_at=event.occurred_at)


def _started(state: ExecutionState, event: Event, _: ExecutionStarted) -> ExecutionState:
    if state.started_at is not None:
        return state
    return _step(state, event, started_at=event.occurred_at)


def _completed(state: ExecutionState, event: Event, _: ExecutionCompleted) -> ExecutionState:
    return state if state.completed_at else _step(state, event, completed_at=event.occurred_at)


def _failed(state: ExecutionState, event: Event, _: ExecutionFailed) -> ExecutionState:
    return state if state.failed_at else _step(state, event, failed_at=event.occurred_at)


def _archived(state: ExecutionState, event: Event, _: ExecutionArchived) -> ExecutionState:
    return state if state.archived_at else _step(state, event, archived_at=event.occurred_at)


def _cancel_requested(state: ExecutionState, event: Event, payload: ExecutionCancelRequested) -> ExecutionState:
    if state.cancel_requested_at is not None:
        return state
    return _step(state, event, cancel_requested_at=event.occurred_at, cancel_reason=payload.reason)


def _canceled(state: ExecutionState, event: Event, _: ExecutionCanceled) -> ExecutionState:
    if state.canceled_at is not None:
        return state
    return _converge(_step(state, event, canceled_at=event.occurred_at))


def _record(state: ExecutionState, _: Event, __: Payload) -> ExecutionState:
    return _replace(state, version=state.version + 1)


def _node_record(state: ExecutionState, _: Event, payload: NodePayload) -> ExecutionState:
    return _replace(state, version=state.version + 1) if payload.node_id in state.nodes else state


def _step(state: ExecutionState, event: Event, **changes: object) -> ExecutionState:
    """Take an execution event: its status by rank, its times and texts as given."""
    proposal = EXECUTION_PROPOSALS.get(event.type)
    if proposal is not None:
        changes["status"] = choose_exec_status(state.status, proposal)
    return _replace(state, version=state.version + 1, **changes)


# --- Nodes -----------------------------------------------------------------------------------------------------------


def _node_created(state: ExecutionState, _: Event, payload: NodeCreated) -> ExecutionState:
    if payload.node_id in state.nodes:
        return state
    place = _place(payload.meta)
    node = NodeState(
        node_id=payload.node_id,
        node_type=payload.node_type,
        retries=place.retries,
        isolated=place.isolated,
        edges=place.edges,
        inputs=place.inputs,
    )
    if state.status is ExecutionStatus.CANCELED:
        node = _converged(node)
    tallies = state.tallies
    if node.node_id in tallies:  # branches that lead here ended before it was created
        tallies = tallies.set(node.node_id, _replace(tallies[node.node_id], inputs=node.inputs))
    return _replace(
        state,
        nodes=state.nodes.set(node.node_id, node),
        counts=_recount(state.counts, None, node.status),
        tallies=tallies,
        version=state.version + 1,
    )


def _place(meta: JsonObject | None) -> NodeMeta:
    try:
        return msgspec.convert(meta or {}, NodeMeta)
    except msgspec.ValidationError:
        return NodeMeta()  # somebody else's meta: theirs to interpret


def _node_moved(state: ExecutionState, event: Event, payload: NodeReady | NodeResumed) -> ExecutionState:
    return _move(state, event, payload.node_id)


def _node_started(state: ExecutionState, event: Event, payload: NodeStarted) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    worker_id = node.worker_id if payload.worker_id is None else payload.worker_id
    return _move(state, event, payload.node_id, attempt=payload.attempt, worker_id=worker_id)


def _node_progressed(state: ExecutionState, _: Event, payload: NodeProgressReported) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    reported = _replace(
        node,
        progress=node.progress if payload.progress is None else payload.progress,
        progress_message=node.progress_message if payload.message is None else payload.message,
    )
    return _put(state, reported)


def _node_waiting(state: ExecutionState, event: Event, payload: NodeWaiting) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    wait_key = node.wait_key if payload.wait_key is None else payload.wait_key
    return _move(state, event, node.node_id, wait_key=wait_key, prompt=payload.prompt)


def _node_succeeded(state: ExecutionState, event: Event, payload: NodeSucceeded) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    output = node.output if payload.output is None else payload.output
    return _move(state, event, node.node_id, output=output)


def _node_fail_reported(state: ExecutionState, _: Event, payload: NodeFailReported) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    attempt = payload.attempt or node.attempt
    reported = _replace(
        node,
        error=node.error if payload.error is None else payload.error,
        failed_attempt=max(node.failed_attempt, attempt),
        failures=node.failures + (attempt > node.failed_attempt),  # told twice, an attempt has still failed once
    )
    return _put(state, reported)


def _node_failed(state: ExecutionState, event: Event, payload: NodeFailed) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    error = node.error if payload.error is None else payload.error
    return _move(state, event, node.node_id, error=error)


def _node_canceled(state: ExecutionState, event: Event, payload: NodeCanceled) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None or node.status is NodeStatus.CANCELED:
        return state
    by_execution = state.is_cancel_requested
    return _move(state, event, node.node_id, skip=payload.skip, canceled_by_execution=by_execution)


def _node_interrupted(state: ExecutionState, _: Event, payload: NodeInterruptRequested) -> ExecutionState:
    node = state.nodes.get(payload.node_id)
    if node is None:
        return state
    return _put(state, _replace(node, interrupted_attempt=node.attempt))


def _put(state: ExecutionState, node: NodeState) -> ExecutionState:
    """Take a node whose status did not change."""
    return _replace(state, nodes=state.nodes.set(node.node_id, node), version=state.version + 1)


def _move(state: ExecutionState, event: Event, node_id: str, **changes: object) -> ExecutionState:
    """Take a node event: its status by rank, its other fields as given."""
    node = state.nodes.get(node_id)
    if node is None:
        return state
    proposal = NODE_PROPOSALS.get(event.type)
    if proposal is None:
        status = STEPS_DOWN.get((node.status, event.type), node.status)
    else:
        status = choose_node_status(node.status, proposal)
    moved = _replace(node, status=status, **changes)
    if status is node.status:
        return state if moved == node else _put(state, moved)
    nodes = state.nodes.set(node_id, moved)
    return _replace(
        state,
        nodes=nodes,
        counts=_recount(state.counts, node.status, status),
        tallies=_retally(state, node, moved) if status in TERMINAL_NODE and moved.edges else state.tallies,
        version=state.version + 1,
    )


# --- Fork and join ---------------------------------------------------------------------------------------------------


def _gate_updated(state: ExecutionState, _: Event, payload: JoinGateUpdated) -> ExecutionState:
    before = state.join_gates.get(payload.node_id)
    gate = JoinGate(
        expected_branches=payload.expected_branches,
        completed_branches=payload.completed_branches,
        failed_branches=payload.failed_branches,
        canceled_branches=payload.canceled_branches,
        policy=payload.policy,
        is_passable=payload.is_passable,
        passed=before is not None and before.passed,
    )
    return _replace(state, join_gates=state.join_gates.set(payload.node_id, gate), version=state.version + 1)


def _join_passed(state: ExecutionState, _: Event, payload: JoinPassed) -> ExecutionState:
    gate = _replace(state.join_gates.get(payload.node_id, JoinGate()), passed=True)
    return _replace(state, join_gates=state.join_gates.set(payload.node_id, gate), version=state.version + 1)


# --- Keeping the sums, and convergence -------------------------------------------------------------------------------

_COUNT_OF: Final = {status: status.value.lower() for status in NodeStatus}


def _recount(counts: Counts, old: NodeStatus | None, new: NodeStatus) -> Counts:
    entering = _COUNT_OF[new]
    changes = {entering: getattr(counts, entering) + 1}
    if old is not None:
        leaving = _COUNT_OF[old]
        changes[leaving] = getattr(counts, leaving) - 1
    return _replace(counts, **changes)


def _retally(state: ExecutionState, old: NodeState, new: NodeState) -> Map[str, Tally]:
    """Settle the node's outgoing edges with those who wait for several of them.

    A rank may still turn one terminal status into a stronger one, so an edge already settled is settled anew.
    """
    tallies = state.tallies
    for edge in new.edges:
        target = state.nodes.get(edge.to)
        if target is not None and not target.is_tallied:
            continue
        tally = tallies.get(edge.to) or Tally(target.inputs if target else 0)
        for fate, change in ((old.fate(edge.on), -1), (new.fate(edge.on), 1)):
            if fate is not None:
                tally = tally.plus(fate, change)
        tallies = tallies.set(edge.to, tally)
    return tallies


def _converge(state: ExecutionState) -> ExecutionState:
    """A canceled execution leaves nothing open: unfinished nodes are canceled, finished ones are marked.

    Needed once, when the execution turns canceled: nodes cannot leave a terminal status, and those created later are
    converged as they come.
    """
    nodes = state.nodes.mutate()
    counts = state.counts
    for node_id, node in state.nodes.items():
        converged = _converged(node)
        if converged is not node:
            nodes[node_id] = converged
            if converged.status is not node.status:
                counts = _recount(counts, node.status, converged.status)
    return _replace(state, nodes=nodes.finish(), counts=counts)


def _converged(node: NodeState) -> NodeState:
    if node.status is NodeStatus.CANCELED:
        return node
    if node.is_terminal:
        return _replace(node, cancellation_applied=True)
    return _replace(node, status=NodeStatus.CANCELED, canceled_by_execution=True)


_APPLY: Final[dict[type[Payload], Callable[[ExecutionState, Event, Any], ExecutionState]]] = {
    ExecutionCreated: _created,
    ExecutionStarted: _started,
    ExecutionCompleted: _completed,
    ExecutionArchived: _archived,
    ExecutionCancelRequested: _cancel_requested,
    ExecutionCanceled: _canceled,
    ExecutionFailRequested: _record,
    ExecutionFailed: _failed,
    NodeCreated: _node_created,
    NodeReady: _node_moved,
    NodeStarted: _node_started,
    NodeProgressReported: _node_progressed,
    NodeWaiting: _node_waiting,
    NodeResumeRequested: _node_record,
    NodeResumed: _node_moved,
    NodeSucceeded: _node_succeeded,
    NodeFailReported: _node_fail_reported,
    NodeFailed: _node_failed,
    NodeCancelRequested: _node_record,
    NodeCanceled: _node_canceled,
    NodeInterruptRequested: _node_interrupted,
    ForkOpened: _record,
    JoinGateUpdated: _gate_updated,
    JoinPassed: _join_passed,
}

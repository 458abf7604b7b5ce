"""The reducer: fold one event into a state. It is pure, handles all 24 events, and is the only writer of states.

This file holds the events of executions, of the creation of nodes, of forks and joins; ``node_reducers`` holds the
events of one node.

An event does one of three things: it *changes* the state; it leaves a *record* that changes no status (requests,
reports, audit marks); or it is *refused*, and the same state object is returned. Refused are events of another schema
version, progress after a cancel request, events of a stale attempt, and events that would change nothing (a lower rank,
a step of a node that does not exist, a second creation). ``version`` counts the first two kinds.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from pyoco_server.core.events import SCHEMA_VERSION, Event
from pyoco_server.core.node_reducers import FEW, NODE_EVENT_STEPS, finished, recount, scratch
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
    NodeCreated,
    Payload,
    place_of,
)
from pyoco_server.core.state import ExecutionState, JoinGate, NodeState, initial_state
from pyoco_server.core.transitions import (
    EXECUTION_PROPOSALS,
    IGNORED_AFTER_CANCEL,
    IGNORED_WHEN_TERMINAL,
    ExecutionStatus,
    NodeStatus,
    choose_exec_status,
)
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
    step = NODE_EVENT_STEPS.get(type(payload))
    if step is None:
        return _APPLY[type(payload)](state, event, payload)
    node = state.nodes.get(payload.node_id)  # type: ignore[attr-defined]  # the table holds node payloads only
    return state if node is None or _is_stale(node, payload) else step(state, event, payload, node)


def _is_stale(node: NodeState, payload: Payload) -> bool:
    """Does the event come from an attempt that another has replaced? This is the fence."""
    return isinstance(payload, AttemptPayload) and payload.attempt is not None and payload.attempt < node.attempt


def fold(events: Iterable[Event], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all ``events``, from the beginning or on top of ``state``."""
    listed = events if isinstance(events, list | tuple) else list(events)
    if state is None:
        if not listed:
            raise ValueError("an empty log belongs to no execution: pass the state to start from")
        state = initial_state(listed[0].execution_id)
    if len(listed) <= FEW:
        return _fold(listed, state)
    folded = _fold(listed, _replace(state, nodes=scratch(state.nodes)))
    return _replace(folded, nodes=finished(folded.nodes))


def _fold(events: Sequence[Event], state: ExecutionState) -> ExecutionState:
    for event in events:
        state = reduce(state, event)
    return state


# --- Execution lifecycle ---------------------------------------------------------------------------------------------
# Each function takes its own payload type, so the table at the end is typed with Any; a test checks that it holds all
# 24 events.


def _created(state: ExecutionState, event: Event, payload: ExecutionCreated) -> ExecutionState:
    if state.exists:
        return state
    return _step(state, event, graph_id=payload.graph_id, input=payload.input, created_at=event.occurred_at)


def _started(state: ExecutionState, event: Event, _: ExecutionStarted) -> ExecutionState:
    if state.started_at is not None:
        return state
    return _step(state, event, started_at=event.occurred_at)


def _completed(state: ExecutionState, event: Event, _: ExecutionCompleted) -> ExecutionState:
    return state if state.completed_at else _step(state, event, completed_at=event.occurred_at)


def _failed(state: ExecutionState, event: Event, payload: ExecutionFailed) -> ExecutionState:
    if state.failed_at is not None:
        return state
    failure = {"reason": payload.reason, "failedNodeId": payload.failed_node_id, "error": payload.error}
    return _step(state, event, failed_at=event.occurred_at, failure=failure)


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


def _step(state: ExecutionState, event: Event, **changes: object) -> ExecutionState:
    """Apply an execution event: its status by rank, its times and texts as given."""
    proposal = EXECUTION_PROPOSALS.get(event.type)
    if proposal is not None:
        changes["status"] = choose_exec_status(state.status, proposal)
    return _replace(state, version=state.version + 1, **changes)


# --- Nodes created, gates of joins ----------------------------------------------------------------------------------


def _node_created(state: ExecutionState, _: Event, payload: NodeCreated) -> ExecutionState:
    if payload.node_id in state.nodes:
        return state
    node, place = NodeState(node_id=payload.node_id, node_type=payload.node_type), place_of(payload.meta)
    if place is not None:
        node = node.placed(place)
    if state.status is ExecutionStatus.CANCELED:
        node = _converged(node)
    tallies = state.tallies
    if node.node_id in tallies:  # branches that lead here ended before it was created
        tallies = tallies.set(node.node_id, _replace(tallies[node.node_id], inputs=node.inputs))
    return _replace(
        state,
        nodes=state.nodes.set(node.node_id, node),
        counts=recount(state.counts, None, node.status),
        tallies=tallies,
        placed=state.placed + (node.inputs > 0 or (place is not None and node.node_type == "Start")),
        version=state.version + 1,
    )


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


# --- Convergence ----------------------------------------------------------------------------------------------------


def _converge(state: ExecutionState) -> ExecutionState:
    """Cancel all unfinished nodes of a canceled execution, and mark the finished ones.

    Once is enough, when the execution turns canceled: no rank is higher than that of a canceled node, and nodes that
    are created later are canceled at their creation.
    """
    nodes = state.nodes.mutate()
    counts = state.counts
    for node_id, node in state.nodes.items():
        converged = _converged(node)
        if converged is not node:
            nodes[node_id] = converged
            if converged.status is not node.status:
                counts = recount(counts, node.status, converged.status)
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
    ForkOpened: _record,
    JoinGateUpdated: _gate_updated,
    JoinPassed: _join_passed,
}

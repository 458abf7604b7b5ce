"""Events for computing a lost result again: another attempt, in the log, at a node that has succeeded.

The node stays SUCCEEDED; NODE_STARTED raises its attempt, and a second NODE_SUCCEEDED has the new output. What followed
from the first success is not repeated. No command does this: the worker that needs the result does, and only if the
task's author allowed it (``recompute=True``).
"""

from datetime import datetime
from typing import Final

from pyoco_server.core.commit import Draft
from pyoco_server.core.events import Actor, Event, NewId, Stamp
from pyoco_server.core.json_codec import JsonObject, timestamp
from pyoco_server.core.payloads import NodeFailReported, NodeStarted, NodeSucceeded, Payload
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import NodeStatus

MADE_BY: Final = "attempt"
"""The field of an output that names the attempt it comes from, if that is not the node's first success."""


def recompute(
    state: ExecutionState, node_id: str, *, worker_id: str, actor: Actor, now: datetime | str, new_id: NewId
) -> list[Event]:
    """Start the next attempt at a node that has succeeded.

    Returns nothing if the node has not succeeded, or if the execution has ended or was asked to cancel.
    """
    node = _succeeded(state, node_id)
    if node is None or state.is_cancel_requested:
        return []
    started = NodeStarted(node_id=node_id, attempt=node.attempt + 1, worker_id=worker_id)
    return _emitted(state, started, actor, now, new_id)


def recomputed(
    state: ExecutionState,
    node_id: str,
    *,
    attempt: int,
    output: JsonObject,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
) -> list[Event]:
    """Record the new output of the attempt that :func:`recompute` started; nothing if another attempt replaced it."""
    node = _succeeded(state, node_id)
    if node is None or node.attempt != attempt:
        return []
    succeeded = NodeSucceeded(node_id=node_id, attempt=attempt, output={**output, MADE_BY: attempt})
    return _emitted(state, succeeded, actor, now, new_id)


def recompute_failed(
    state: ExecutionState,
    node_id: str,
    *,
    attempt: int,
    error: JsonObject,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
) -> list[Event]:
    """Record that the attempt failed; the node stays succeeded. Nothing if another attempt replaced it."""
    node = _succeeded(state, node_id)
    if node is None or node.attempt != attempt or node.failed_attempt >= attempt:
        return []
    failed = NodeFailReported(node_id=node_id, attempt=attempt, error=error)
    return _emitted(state, failed, actor, now, new_id)


def _succeeded(state: ExecutionState, node_id: str) -> NodeState | None:
    node = state.nodes.get(node_id)
    return node if node is not None and node.status is NodeStatus.SUCCEEDED and not state.is_terminal else None


def _emitted(state: ExecutionState, payload: Payload, actor: Actor, now: datetime | str, new_id: NewId) -> list[Event]:
    draft = Draft(state, Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id, correlation_id=None))
    draft.emit(payload, None, actor=actor)
    return draft.events

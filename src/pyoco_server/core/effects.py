"""What a commit asks of whoever made it, as values. Performing them is the caller's affair.

Effects are derived from events that are already durable, so losing one loses nothing: whoever comes next can derive it
again from the log.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from pyoco_server.core.events import Event
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.payloads import (
    ExecutionCanceled,
    ExecutionCompleted,
    ExecutionFailed,
    NodeFailReported,
    NodeInterruptRequested,
    NodePayload,
    NodeReady,
    NodeResumed,
    Payload,
)
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import ExecutionStatus, NodeStatus
from pyoco_server.core.wire import JsonObject


class RunNode(msgspec.Struct, frozen=True):
    """Begin the node's next attempt."""

    node_id: str
    attempt: int


class RetryNode(msgspec.Struct, frozen=True):
    """Begin another attempt after one failed, when its time has come."""

    node_id: str
    attempt: int


class InterruptNode(msgspec.Struct, frozen=True):
    """Tell whoever is at work on this attempt to stop."""

    node_id: str
    attempt: int
    worker_id: str | None


class WakeNode(msgspec.Struct, frozen=True):
    """Go on with a node that waited; ``input`` is what came with the resume."""

    node_id: str
    attempt: int
    input: JsonObject


class EndExecution(msgspec.Struct, frozen=True):
    """Let go of the execution: it has ended."""

    status: ExecutionStatus


Effect = RunNode | RetryNode | InterruptNode | WakeNode | EndExecution


def effects(events: Iterable[Event], state: ExecutionState) -> list[Effect]:
    """What ``events`` ask for, given the state after all of them; what they themselves undid is left out."""
    wanted = [_effect(event.payload, state) for event in events if type(event.payload) in _MAY_ASK]
    return [effect for effect in wanted if effect is not None]


_MAY_ASK: Final = frozenset(
    {
        ExecutionCompleted,
        ExecutionFailed,
        ExecutionCanceled,
        NodeReady,
        NodeFailReported,
        NodeResumed,
        NodeInterruptRequested,
    }
)
"""The other events are records: nobody has to act on them."""


def _effect(payload: Payload, state: ExecutionState) -> Effect | None:
    if not isinstance(payload, NodePayload):
        return EndExecution(state.status) if state.is_terminal else None
    node = state.nodes.get(payload.node_id)
    return None if node is None else _node_effect(payload, node)


def _node_effect(payload: NodePayload, node: NodeState) -> Effect | None:
    match payload:
        case NodeReady():
            runs = node.status is NodeStatus.READY and node.node_type not in CONTROL
            return RunNode(node.node_id, node.attempt + 1) if runs else None
        case NodeFailReported():
            tries_again = node.status is NodeStatus.RUNNING and not node.is_at_work
            return RetryNode(node.node_id, node.attempt + 1) if tries_again else None
        case NodeResumed(extra=extra):
            return WakeNode(node.node_id, node.attempt, extra) if node.is_at_work else None
        case NodeInterruptRequested(worker_id=worker_id):
            return InterruptNode(node.node_id, node.attempt, worker_id)
        case _:  # not one of those that ask for anything
            return None

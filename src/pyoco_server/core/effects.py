"""What a commit asks of whoever made it, as values. Performing them is the caller's affair.

Effects are derived from events that are already durable, so losing one loses nothing: whoever comes next can derive it
again from the log.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from pyoco_server.core.events import Event
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.payloads import (
    ExecutionCanceled,
    ExecutionCompleted,
    ExecutionFailed,
    NodeFailReported,
    NodeInterruptRequested,
    NodeReady,
    NodeResumed,
    Payload,
)
from pyoco_server.core.state import ExecutionState
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
    found = list[Effect]()
    for event in events:
        asks_for = _ASKS_FOR.get(type(event.payload))
        effect = None if asks_for is None else asks_for(event.payload, state)
        if effect is not None:
            found.append(effect)
    return found


def _end(_: ExecutionCompleted | ExecutionFailed | ExecutionCanceled, state: ExecutionState) -> Effect | None:
    return EndExecution(state.status) if state.is_terminal else None


def _run(payload: NodeReady, state: ExecutionState) -> Effect | None:
    node = state.nodes.get(payload.node_id)
    if node is None or node.status is not NodeStatus.READY or node.node_type in CONTROL:
        return None
    return RunNode(node.node_id, node.attempt + 1)


def _retry(payload: NodeFailReported, state: ExecutionState) -> Effect | None:
    node = state.nodes.get(payload.node_id)
    if node is None or node.status is not NodeStatus.RUNNING or node.is_at_work:
        return None
    return RetryNode(node.node_id, node.attempt + 1)


def _wake(payload: NodeResumed, state: ExecutionState) -> Effect | None:
    node = state.nodes.get(payload.node_id)
    return WakeNode(node.node_id, node.attempt, payload.extra) if node is not None and node.is_at_work else None


def _interrupt(payload: NodeInterruptRequested, state: ExecutionState) -> Effect | None:
    node = state.nodes.get(payload.node_id)
    return None if node is None else InterruptNode(node.node_id, node.attempt, payload.worker_id)


_ASKS_FOR: Final[dict[type[Payload], Callable[[Any, ExecutionState], Effect | None]]] = {
    ExecutionCompleted: _end,
    ExecutionFailed: _end,
    ExecutionCanceled: _end,
    NodeReady: _run,
    NodeFailReported: _retry,
    NodeResumed: _wake,
    NodeInterruptRequested: _interrupt,
}
"""The other events are records: nobody has to act on them."""

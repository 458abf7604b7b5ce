"""What the caller must do after a commit, as values; the caller performs them.

Effects are derived from events that are already durable, so losing one loses nothing: the next owner of the run derives
it again from the log.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from pyoco_server.core.events import Event
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.json_codec import JsonObject
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


class RunNode(msgspec.Struct, frozen=True):
    """Start the node's next attempt."""

    node_id: str
    attempt: int


class RetryNode(msgspec.Struct, frozen=True):
    """Start another attempt after one failed, when its backoff has passed."""

    node_id: str
    attempt: int


class InterruptNode(msgspec.Struct, frozen=True):
    """Ask the worker that runs this attempt to stop."""

    node_id: str
    attempt: int
    worker_id: str | None


class WakeNode(msgspec.Struct, frozen=True):
    """Continue a node that waited; ``input`` is what came with the resume."""

    node_id: str
    attempt: int
    input: JsonObject


class EndExecution(msgspec.Struct, frozen=True):
    """Release the execution: it has ended."""

    status: ExecutionStatus


Effect = RunNode | RetryNode | InterruptNode | WakeNode | EndExecution


def effects(events: Iterable[Event], state: ExecutionState) -> list[Effect]:
    """Return what the caller must do after ``events``; ``state`` is the state after all of them.

    What a later event of the same commit undid is left out.
    """
    found = list[Effect]()
    for event in events:
        derive = _EFFECT_OF.get(type(event.payload))
        effect = None if derive is None else derive(event.payload, state)
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


_EFFECT_OF: Final[dict[type[Payload], Callable[[Any, ExecutionState], Effect | None]]] = {
    ExecutionCompleted: _end,
    ExecutionFailed: _end,
    ExecutionCanceled: _end,
    NodeReady: _run,
    NodeFailReported: _retry,
    NodeResumed: _wake,
    NodeInterruptRequested: _interrupt,
}
"""The other events have no effect outside of the log."""

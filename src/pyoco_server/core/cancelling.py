"""How a requested cancel is brought to its end.

Convergence has two modes. *Waiting for workers*: nodes somebody is at work on are asked to stop, all others are
canceled, and the execution is canceled when nobody is at work any more. *Immediate*: nobody is waited for; this is what
the end of the grace period, or a caller who will not wait, asks for.
"""

from enum import Enum, auto, unique

from pyoco_server.core.draft import Draft
from pyoco_server.core.events import Event
from pyoco_server.core.failing import interrupt_node, stop_node
from pyoco_server.core.payloads import ExecutionCanceled


@unique
class CancelMode(Enum):
    """Whether a cancel waits for work in progress to stop."""

    WAIT_FOR_WORKERS = auto()
    IMMEDIATE = auto()


def converge(draft: Draft, cause: Event | None, mode: CancelMode) -> None:
    """Take a requested cancel as far as it can go now. Looks at all nodes."""
    reason = draft.state.cancel_reason
    open_nodes = [node for node in draft.state.nodes.values() if not node.is_terminal]
    for node in sorted(open_nodes, key=lambda open_node: open_node.node_id):
        if mode is CancelMode.IMMEDIATE or not node.is_at_work:
            stop_node(draft, node, reason, cause)
        else:
            interrupt_node(draft, node, reason, cause)
    conclude(draft, cause)


def conclude(draft: Draft, cause: Event | None) -> None:
    """Record the end of a cancel once nothing runs."""
    if draft.state.counts.running == 0 and not draft.state.is_terminal:
        draft.emit(ExecutionCanceled(reason=draft.state.cancel_reason), cause)

"""Shows a run as lines of text: ``HH:MM:SS EVENT node detail``. For pipes and files, and with ``--plain``."""

import sys
from collections.abc import Sequence

from pyoco_server.cli.shared.descriptions import clock_time, detail, failures, lasted, question, shown
from pyoco_server.core import Event, EventType, ExecutionState, NodeState
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.payloads import NodePayload
from pyoco_server.engine import RunResult

_HIDDEN = frozenset(
    {
        EventType.NODE_CREATED,
        EventType.NODE_READY,
        EventType.NODE_RESUME_REQUESTED,
        EventType.FORK_OPENED,
        EventType.JOIN_GATE_UPDATED,
        EventType.JOIN_PASSED,
    }
)
"""Events that only the graph needs; ``--json`` shows all events."""


def line(event: Event, state: ExecutionState) -> str | None:
    """Return the line of an event; None if it is not shown."""
    if event.type in _HIDDEN:
        return None
    node_id = event.payload.node_id if isinstance(event.payload, NodePayload) else None
    if node_id is not None and state.nodes[node_id].node_type in CONTROL:
        return None
    return f"{clock_time(event.occurred_at)} {event.type} {node_id or '-'} {detail(event)}".rstrip()


class PlainView:
    """Writes events and results to stdout, and everything else to stderr."""

    def show(self, events: Sequence[Event], state: ExecutionState) -> None:
        """Write each event as a line."""
        for event in events:
            text = line(event, state)
            if text is not None:
                print(text, flush=True)  # noqa: T201 the output of the command

    def ask(self, node: NodeState | None) -> None:
        """Write the question to stderr."""
        if node is not None:
            self.note(question(node))

    def note(self, text: str) -> None:
        """Write a note to stderr."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201

    def end(self, result: RunResult) -> None:
        """Write the results, the outcome and the failures."""
        for name, value in result.results.items():
            print(f"{name} = {shown(value)}")  # noqa: T201
        print(f"{result.status} in {lasted(result.state)}", flush=True)  # noqa: T201
        for text in failures(result.state):
            self.note(text)

    def close(self) -> None:
        """Do nothing: nothing was changed."""

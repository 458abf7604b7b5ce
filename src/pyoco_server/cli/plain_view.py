"""A run as lines of text: ``HH:MM:SS EVENT node detail``. For pipes, files and those who like it."""

import sys
from collections.abc import Sequence

from pyoco_server.cli.descriptions import clock_time, detail, failures, lasted, question, shown
from pyoco_server.core import Event, EventType, ExecutionState, NodeState
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.payloads import NodePayload
from pyoco_server.engine import RunResult

_UNTOLD = frozenset(
    {
        EventType.NODE_CREATED,
        EventType.NODE_READY,
        EventType.NODE_RESUME_REQUESTED,
        EventType.FORK_OPENED,
        EventType.JOIN_GATE_UPDATED,
        EventType.JOIN_PASSED,
    }
)
"""The graph's own bookkeeping; ``--json`` has it all."""


def line(event: Event, state: ExecutionState) -> str | None:
    """The line of an event; None if it is not worth one."""
    if event.type in _UNTOLD:
        return None
    node_id = event.payload.node_id if isinstance(event.payload, NodePayload) else None
    if node_id is not None and state.nodes[node_id].node_type in CONTROL:
        return None
    return f"{clock_time(event.occurred_at)} {event.type} {node_id or '-'} {detail(event)}".rstrip()


class PlainView:
    """Writes lines to stdout; what is not an event goes to stderr."""

    def show(self, events: Sequence[Event], state: ExecutionState) -> None:
        """One line each."""
        for event in events:
            text = line(event, state)
            if text is not None:
                print(text, flush=True)  # noqa: T201 the command line speaks by printing

    def ask(self, node: NodeState | None) -> None:
        """Put the question."""
        if node is not None:
            self.note(question(node))

    def note(self, text: str) -> None:
        """Say it on stderr."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201

    def end(self, result: RunResult) -> None:
        """The results, what failed, and how it ended."""
        for name, value in result.results.items():
            print(f"{name} = {shown(value)}")  # noqa: T201
        print(f"{result.status} in {lasted(result.state)}", flush=True)  # noqa: T201
        for text in failures(result.state):
            self.note(text)

    def close(self) -> None:
        """Nothing was changed that had to be put back."""

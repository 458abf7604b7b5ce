"""The port that shows a run: a live tree, plain lines or JSON."""

from collections.abc import Sequence
from typing import Protocol

from pyoco_server.core import Event, ExecutionState, NodeState
from pyoco_server.engine import RunResult


class View(Protocol):
    """Shows one run. All methods are called by one thread."""

    def show(self, events: Sequence[Event], state: ExecutionState) -> None:
        """Show new events and the state after them."""
        ...

    def ask(self, node: NodeState | None) -> None:
        """Ask the user to answer this waiting node; None: no question is open."""
        ...

    def note(self, text: str) -> None:
        """Show a text that is not an event."""
        ...

    def end(self, result: RunResult) -> None:
        """Show the outcome of the ended run."""
        ...

    def close(self) -> None:
        """Restore the terminal; may be called at any time, and twice."""
        ...

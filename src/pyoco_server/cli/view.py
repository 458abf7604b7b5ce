"""What a run looks like to somebody: the port that the ways of showing it serve."""

from collections.abc import Sequence
from typing import Protocol

from pyoco_server.core import Event, ExecutionState, NodeState
from pyoco_server.engine import RunResult


class View(Protocol):
    """Shows one run. All methods are called by one thread."""

    def show(self, events: Sequence[Event], state: ExecutionState) -> None:
        """These events happened, and so it stands."""
        ...

    def ask(self, node: NodeState | None) -> None:
        """Somebody at the terminal is to answer for this waiting node; None: nothing is asked any more."""
        ...

    def note(self, text: str) -> None:
        """Say something that is not an event."""
        ...

    def end(self, result: RunResult) -> None:
        """The run is over: show the outcome."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; may be called at any time, and twice."""
        ...

"""Shows a run in a terminal as a live tree of its nodes. During a question, the tree is not redrawn."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from pyoco_server.adapters.system import SystemClock
from pyoco_server.cli.local_run.run_tree import RunTree
from pyoco_server.cli.shared.descriptions import failures, lasted, question, shown
from pyoco_server.core import Event, ExecutionState, NodeState
from pyoco_server.engine import RunResult

_REFRESH_PER_SEC = 10
_MOST_ROWS = 500
_OUTCOME_STYLES = {"COMPLETED": "bold green", "FAILED": "bold red", "CANCELED": "bold yellow"}


class LiveView:
    """Draws on a terminal. rich redraws in a thread of its own, hence the lock around the tree."""

    def __init__(
        self,
        console: Console | None = None,
        errors: Console | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._console = console or Console(highlight=False)
        self._errors = errors or Console(stderr=True, highlight=False)
        self._now = now or SystemClock().now
        self._tree = RunTree()
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._over = False
        self._asking = False

    def show(self, events: Sequence[Event], state: ExecutionState) -> None:
        """Update the tree; the next redraw shows it."""
        with self._lock:
            self._tree.take(events, state)
        if not self._asking:
            self._begin()

    def ask(self, node: NodeState | None) -> None:
        """Stop redrawing and print a question, or redraw again after the last answer."""
        if node is None:
            self._asking = False
            self._begin()
            return
        self._asking = True
        self._halt(erase=True)
        self._console.print(self._drawn())
        self._console.print(Text(question(node), style="yellow"))

    def note(self, text: str) -> None:
        """Print a note above the tree."""
        self._console.print(Text(text, style="yellow"))

    def end(self, result: RunResult) -> None:
        """Print the final tree, the results and the errors."""
        self._over = True
        if self._live is None:
            self._console.print(self._drawn())
        self._halt(erase=False)
        for name, value in result.results.items():
            self._console.print(Text.assemble((name, "bold"), f" = {shown(value)}"))
        outcome = (result.status, _OUTCOME_STYLES.get(result.status, ""))
        self._console.print(Text.assemble(outcome, f" in {lasted(result.state)}"))
        for text in failures(result.state):
            self._errors.print(Text(text, style="red"))

    def close(self) -> None:
        """Show the cursor again."""
        self._halt(erase=False)

    def _begin(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._drawn, console=self._console, refresh_per_second=_REFRESH_PER_SEC, transient=False
            )
            self._live.start(refresh=True)

    def _halt(self, *, erase: bool) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.transient = erase
            live.stop()

    def _drawn(self) -> RenderableType:
        """Render the tree: a live one must fit on the screen, the final one may be longer."""
        room = _MOST_ROWS if self._over or not self._console.is_terminal else max(self._console.height - 4, 5)
        with self._lock:
            return self._tree.render(self._now(), limit=room)

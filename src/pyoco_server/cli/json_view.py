"""A run as JSON lines: every event exactly as the log's own encoding writes it, and nothing else on stdout."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from pyoco_server.cli.descriptions import failures, question
from pyoco_server.core import Event, ExecutionState, NodeState, encode_event
from pyoco_server.engine import RunResult


@contextmanager
def reserved_stdout() -> Iterator[BinaryIO]:
    """Give stdout to the caller alone; what anybody else writes there, child processes included, goes to stderr."""
    sys.stdout.flush()
    number = sys.stdout.fileno()
    ours = os.dup(number)
    os.dup2(sys.stderr.fileno(), number)
    try:
        with os.fdopen(os.dup(ours), "wb") as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(ours, number)
        os.close(ours)


class JsonView:
    """Writes events to a stream; all else goes to stderr."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def show(self, events: Sequence[Event], _: ExecutionState) -> None:
        """One line each, at once: somebody may be reading along."""
        for event in events:
            self._stream.write(encode_event(event) + b"\n")
        self._stream.flush()

    def ask(self, node: NodeState | None) -> None:
        """Put the question on stderr."""
        if node is not None:
            self.note(question(node))

    def note(self, text: str) -> None:
        """Say it on stderr."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201 the command line speaks by printing

    def end(self, result: RunResult) -> None:
        """The outcome is in the events; what failed is told for people too."""
        for text in failures(result.state):
            self.note(text)

    def close(self) -> None:
        """Write out what is left."""
        self._stream.flush()

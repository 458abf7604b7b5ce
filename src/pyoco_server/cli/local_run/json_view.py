"""Shows a run as JSON lines: each event as the log encodes it, and nothing else on stdout."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from pyoco_server.cli.shared.descriptions import failures, question
from pyoco_server.core import Event, ExecutionState, NodeState, encode_event
from pyoco_server.engine import RunResult


@contextmanager
def reserved_stdout() -> Iterator[BinaryIO]:
    """Reserve stdout for the caller; what other code or child processes write there goes to stderr."""
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
    """Writes events to a stream, and everything else to stderr."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def show(self, events: Sequence[Event], _: ExecutionState) -> None:
        """Write each event as a line, without buffering."""
        for event in events:
            self._stream.write(encode_event(event) + b"\n")
        self._stream.flush()

    def ask(self, node: NodeState | None) -> None:
        """Write the question to stderr."""
        if node is not None:
            self.note(question(node))

    def note(self, text: str) -> None:
        """Write a note to stderr."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201 the output of the command

    def end(self, result: RunResult) -> None:
        """Write the failures to stderr; the outcome is in the events."""
        for text in failures(result.state):
            self.note(text)

    def close(self) -> None:
        """Flush the stream."""
        self._stream.flush()

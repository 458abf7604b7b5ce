"""Runs a flow in this process for ``pyoco-client run``: events, signals and typed lines in one queue and one thread.

The engine reports commits in its own thread, signals arrive at any time, and a third thread reads the terminal. All of
them only put items into the inbox; the main thread takes them out and acts, so nothing here needs a lock. The main
thread calls the engine through helper threads: a task that blocks the engine's loop must not block the second Ctrl-C.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NoReturn, Protocol

from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.cli.local_run.json_view import JsonView, reserved_stdout
from pyoco_server.cli.local_run.live_view import LiveView
from pyoco_server.cli.local_run.load_flow import load_flow, placed_in
from pyoco_server.cli.local_run.plain_view import PlainView
from pyoco_server.cli.shared.params import read_params, typed_value
from pyoco_server.core import CommandRejected, Event, ExecutionState, NodeState, NodeStatus
from pyoco_server.core.payloads import NodeWaiting
from pyoco_server.engine import Engine, EngineClosedError, RunResult, UnknownRunError
from pyoco_server.flows.errors import AnswerError
from pyoco_server.flows.model import FlowModel


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


class TerminalLines:
    """Passes on each typed line, and None at the end of the input."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hand_over: Callable[[str | None], None] | None = None

    @classmethod
    def of_stdin(cls) -> "TerminalLines | None":
        """Return the lines of stdin, if it is a terminal."""
        return cls(sys.stdin.fileno()) if sys.stdin is not None and sys.stdin.isatty() else None

    def start(self, hand_over: Callable[[str | None], None]) -> None:
        """Start reading, unless it has started; not before a question, as the terminal belongs to the user."""
        if self._hand_over is None:
            self._hand_over = hand_over
            threading.Thread(target=self._read, args=(hand_over,), name="pyoco-terminal", daemon=True).start()

    def _read(self, hand_over: Callable[[str | None], None]) -> None:
        """Read without Python's buffered stdin: its lock, held by a daemon thread, would abort the interpreter."""
        pending = b""
        while True:
            try:
                piece = os.read(self._descriptor, 65_536)
            except OSError:  # the terminal was closed
                piece = b""
            if not piece:
                hand_over(None)
                return
            *lines, pending = (pending + piece).split(b"\n")
            for text in lines:
                hand_over(text.decode(errors="replace").strip())


COMPLETED, FAILED, STOPPED = 0, 1, 130

# The time for the engine, at the second Ctrl-C, to end the run and then itself. It needs a few hundredths of a second,
# unless a task blocks its loop; then only the end of the process helps.
_LAST_CHANCE_SEC = 0.7


@dataclass(frozen=True, slots=True)
class _Committed:
    events: Sequence[Event]
    state: ExecutionState


@dataclass(frozen=True, slots=True)
class _Signal:
    number: int


@dataclass(frozen=True, slots=True)
class _TypedLine:
    text: str | None


@dataclass(frozen=True, slots=True)
class _Refused:
    """The engine refused an answer: it does not fit the form, or came too late."""

    node_id: str
    why: str


@dataclass(frozen=True, slots=True)
class _OutOfTime:
    """The engine did not end the run in time."""


@dataclass(frozen=True, slots=True)
class _Ended:
    result: RunResult


@dataclass(frozen=True, slots=True)
class _Crashed:
    error: Exception


_Item = _Committed | _Signal | _TypedLine | _Refused | _OutOfTime | _Ended | _Crashed


class LocalRun:
    """Runs one flow on an engine, and closes the engine. Use it once, in the main thread, where signals arrive."""

    def __init__(self, engine: Engine, view: View, lines: TerminalLines | None) -> None:
        self._engine = engine
        self._view = view
        self._lines = lines
        self._inbox: SimpleQueue[_Item] = SimpleQueue()
        self._run_id = ""
        self._state: ExecutionState | None = None
        self._questions: list[str] = []
        self._stopping = False
        self._at_once = False
        self._is_unanswerable = False

    def go(self, flow: Flow | FlowModel, params: Mapping[str, Any]) -> int:
        """Run the flow to its end and return the exit code; FlowError if it cannot be started."""
        try:
            with self._engine, self._signals():
                self._run_id = self._engine.start(flow, params, listener=self._listen)
                self._in_background(self._wait)
                result = self._handle_items()
                self._view.end(result)
                if self._at_once:
                    self._close_at_once()
        finally:
            self._view.close()
        return self._exit_code(result)

    def _exit_code(self, result: RunResult) -> int:
        if result.status == "COMPLETED":
            return COMPLETED
        return STOPPED if result.status == "CANCELED" and self._stopping else FAILED

    def _handle_items(self) -> RunResult:
        while True:
            match self._inbox.get():
                case _Committed(events, state):
                    self._on_commit(events, state)
                case _Signal(number):
                    self._on_signal(number)
                case _TypedLine(text):
                    self._on_line(text)
                case _Refused(node_id, why):
                    self._view.note(f"'{node_id}' did not take the answer: {why}")
                case _OutOfTime():
                    self._view.note("A task blocks the engine: how the run ended could not be recorded.")
                    self._leave()
                case _Crashed(error):
                    raise error
                case _Ended(result):  # last of a closed set
                    return result

    # --- Events of the run -------------------------------------------------------------------------------------------

    def _on_commit(self, events: Sequence[Event], state: ExecutionState) -> None:
        self._state = state
        self._view.show(events, state)
        asked = self._questions[:1]
        self._questions = [node_id for node_id in self._questions if _is_waiting(state, node_id)]
        for event in events:
            if isinstance(event.payload, NodeWaiting) and _is_waiting(state, event.payload.node_id):
                self._on_wait(event.payload)
        if self._questions[:1] != asked:
            self._ask()

    def _on_wait(self, wait: NodeWaiting) -> None:
        if self._lines is not None:
            self._lines.start(lambda text: self._inbox.put(_TypedLine(text)))
            self._questions.append(wait.node_id)
        elif "deadline" not in wait.extra:
            self._cancel_unanswerable(wait.node_id)

    def _cancel_unanswerable(self, node_id: str) -> None:
        """Cancel the run: no user can answer the wait, and the command would never end."""
        if not self._is_unanswerable:
            self._is_unanswerable = True
            self._view.note(
                f"error: '{node_id}' waits for an answer, has no deadline, and stdin is not a terminal where a user "
                "could answer; the run is cancelled. Run it in a terminal, or give the wait a deadline."
            )
            self._cancel(f"no user can answer '{node_id}'")

    # --- Typed lines -------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        nodes = self._state.nodes if self._state is not None else {}
        self._view.ask(nodes[self._questions[0]] if self._questions else None)

    def _on_line(self, text: str | None) -> None:
        if text is None:
            self._on_end_of_input()
        elif self._questions and text:
            self._in_background(self._answer, self._questions[0], typed_value(text))
        elif self._questions:  # an empty line must not answer the question
            self._view.note("To resume without a value, type null:")

    def _answer(self, node_id: str, value: Any) -> None:  # noqa: ANN401 any JSON value
        try:
            self._engine.resume(self._run_id, node_id, value)
        except (
            AnswerError,
            CommandRejected,
            UnknownRunError,
        ) as refusal:  # a deadline or a cancel was first
            self._inbox.put(_Refused(node_id, str(refusal)))

    def _on_end_of_input(self) -> None:
        """Handle Ctrl-D: no question can be answered any more."""
        self._lines = None
        questions, self._questions = self._questions, []
        self._ask()
        for node_id in questions:
            self._cancel_unanswerable(node_id)

    # --- Stopping ----------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if not self._stopping:
            self._stopping = True
            self._view.note("Stopping: the tasks were asked to end. Press Ctrl-C again to stop at once.")
            self._cancel(f"stopped by {signal.Signals(number).name}")
        elif number == signal.SIGINT and not self._at_once:
            self._at_once = True
            self._view.note("Stopping at once.")
            self._cancel("stopped at once by SIGINT", immediate=True)
            self._in_background(self._count_down)
        elif number == signal.SIGINT:
            self._leave()

    def _cancel(self, reason: str, *, immediate: bool = False) -> None:
        def cancel() -> None:
            # The run or the engine may have ended: then there is nothing to cancel.
            with contextlib.suppress(CommandRejected, UnknownRunError, EngineClosedError, CancelledError):
                self._engine.cancel(self._run_id, reason, immediate=immediate)

        self._in_background(cancel)

    def _count_down(self) -> None:
        threading.Event().wait(_LAST_CHANCE_SEC)
        self._inbox.put(_OutOfTime())

    def _close_at_once(self) -> None:
        closing = self._in_background(self._engine.close)
        closing.join(_LAST_CHANCE_SEC)
        if closing.is_alive():
            self._leave()

    def _leave(self) -> NoReturn:
        """End the process without waiting for threads, which may be stuck and block the exit of the interpreter."""
        self._view.note("Stopped at once.")
        self._view.close()
        self._in_background(self._engine.close).join(_LAST_CHANCE_SEC)  # it ends child processes
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(STOPPED)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Put signals into the inbox; SimpleQueue.put is reentrant, so a signal handler may call it."""
        before = {
            number: signal.signal(number, lambda got, _: self._inbox.put(_Signal(got)))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- Threads -----------------------------------------------------------------------------------------------------

    def _listen(self, events: Sequence[Event], state: ExecutionState) -> None:
        self._inbox.put(_Committed(events, state))

    def _wait(self) -> None:
        try:
            self._inbox.put(_Ended(self._engine.wait(self._run_id)))
        except Exception as error:  # noqa: BLE001 the main thread raises it
            self._inbox.put(_Crashed(error))

    def _in_background(self, work: Callable[..., object], *args: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=args, name="pyoco-command", daemon=True)
        thread.start()
        return thread


def _is_waiting(state: ExecutionState, node_id: str) -> bool:
    return state.nodes[node_id].status is NodeStatus.WAITING


def run_flow(arguments: argparse.Namespace) -> int:
    """Run the flow and return the exit code; UsageError or FlowError if there is nothing to run."""
    params = read_params(arguments.param, arguments.params, arguments.params_file)
    # The view is opened first: with --json, the prints of a loading module must not reach stdout either.
    with _view(as_json=arguments.json, plain=arguments.plain) as view:
        flow = load_flow(arguments.target, arguments.flow)
        engine = Engine(cancel_grace_sec=arguments.grace_sec)
        with placed_in(arguments.target):
            return LocalRun(engine, view, TerminalLines.of_stdin()).go(flow, params)


@contextmanager
def _view(*, as_json: bool, plain: bool) -> Iterator[View]:
    if as_json:
        with reserved_stdout() as stdout:
            yield JsonView(stdout)
    elif plain or not sys.stdout.isatty():
        yield PlainView()
    else:
        yield LiveView()

"""One run watched from the command line: its events, the signals, and what is typed, in one queue and one thread.

The engine tells of commits on its own thread, signals come whenever they like, and the terminal is read by a third.
All of them only put something into the inbox; the main thread takes it out and acts, so nothing here needs a lock. What
the main thread asks of the engine it asks through helper threads: a task that blocks the engine's loop must not keep
the second Ctrl-C from working.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NoReturn

from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.cli.params import typed_value
from pyoco_server.cli.terminal_lines import TerminalLines
from pyoco_server.cli.view import View
from pyoco_server.core import CommandRejected, Event, ExecutionState, NodeStatus
from pyoco_server.core.payloads import NodeWaiting
from pyoco_server.engine import Engine, EngineClosedError, RunResult, UnknownRunError
from pyoco_server.flows.forms import AnswerError
from pyoco_server.flows.model import FlowModel

COMPLETED, FAILED, STOPPED = 0, 1, 130

# How long the engine has, when the user wants to be gone, to end the run and then to end itself. It needs a few
# hundredths, unless a task blocks its loop; then nothing but the end of the process helps.
_LAST_CHANCE_SEC = 0.7


@dataclass(frozen=True, slots=True)
class _Commit:
    events: Sequence[Event]
    state: ExecutionState


@dataclass(frozen=True, slots=True)
class _Signal:
    number: int


@dataclass(frozen=True, slots=True)
class _Line:
    text: str | None


@dataclass(frozen=True, slots=True)
class _Refused:
    """The answer to a question does not fit its form, or came too late."""

    node_id: str
    why: str


@dataclass(frozen=True, slots=True)
class _OutOfTime:
    """The engine could not end the run at once."""


@dataclass(frozen=True, slots=True)
class _Ended:
    result: RunResult


@dataclass(frozen=True, slots=True)
class _Crashed:
    error: Exception


_Item = _Commit | _Signal | _Line | _Refused | _OutOfTime | _Ended | _Crashed


class LocalRun:
    """Runs one flow on an engine, which it closes; use once, on the main thread, where signals arrive."""

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
        self._hopeless = False

    def go(self, flow: Flow | FlowModel, params: Mapping[str, Any]) -> int:
        """Run the flow to its end and return the exit code; FlowError if it cannot be started."""
        try:
            with self._engine, self._signals():
                self._run_id = self._engine.start(flow, params, listener=self._listen)
                self._in_background(self._wait)
                result = self._until_the_end()
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

    def _until_the_end(self) -> RunResult:
        while True:
            match self._inbox.get():
                case _Commit(events, state):
                    self._on_commit(events, state)
                case _Signal(number):
                    self._on_signal(number)
                case _Line(text):
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

    # --- What happens to the run -------------------------------------------------------------------------------------

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
            self._lines.start(lambda text: self._inbox.put(_Line(text)))
            self._questions.append(wait.node_id)
        elif "deadline" not in wait.extra:
            self._give_up(wait.node_id)

    def _give_up(self, node_id: str) -> None:
        """Nobody can ever answer: better an end than a command that hangs."""
        if not self._hopeless:
            self._hopeless = True
            self._view.note(
                f"error: '{node_id}' waits for an answer, has no deadline, and stdin is not a terminal where somebody "
                "could give one; the run is cancelled. Run it in a terminal, or give the wait a deadline."
            )
            self._cancel(f"nobody can answer '{node_id}'")

    # --- What somebody types -----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        nodes = self._state.nodes if self._state is not None else {}
        self._view.ask(nodes[self._questions[0]] if self._questions else None)

    def _on_line(self, text: str | None) -> None:
        if text is None:
            self._on_end_of_input()
        elif self._questions and text:
            self._in_background(self._answer, self._questions[0], typed_value(text))
        elif self._questions:  # an Enter too many must not approve anything
            self._view.note("To go on without a value, type null:")

    def _answer(self, node_id: str, value: Any) -> None:  # noqa: ANN401 any JSON value
        try:
            self._engine.resume(self._run_id, node_id, value)
        except (
            AnswerError,
            CommandRejected,
            UnknownRunError,
        ) as refusal:  # a deadline, or a cancel, may be first
            self._inbox.put(_Refused(node_id, str(refusal)))

    def _on_end_of_input(self) -> None:
        """Ctrl-D: nobody will answer any more, now or later."""
        self._lines = None
        questions, self._questions = self._questions, []
        self._ask()
        for node_id in questions:
            self._give_up(node_id)

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
            # It has just ended, or the engine has: then there is no need.
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
        """End the process without waiting for threads, which may be stuck and can hold the interpreter's end."""
        self._view.note("Stopped at once.")
        self._view.close()
        self._in_background(self._engine.close).join(_LAST_CHANCE_SEC)  # it ends child processes, if it can
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(STOPPED)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Have signals put into the inbox; SimpleQueue.put may be called by a handler, whatever it interrupts."""
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
        self._inbox.put(_Commit(events, state))

    def _wait(self) -> None:
        try:
            self._inbox.put(_Ended(self._engine.wait(self._run_id)))
        except Exception as error:  # noqa: BLE001 the engine broke down: the main thread raises it
            self._inbox.put(_Crashed(error))

    def _in_background(self, work: Callable[..., object], *args: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=args, name="pyoco-command", daemon=True)
        thread.start()
        return thread


def _is_waiting(state: ExecutionState, node_id: str) -> bool:
    return state.nodes[node_id].status is NodeStatus.WAITING

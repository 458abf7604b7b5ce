"""Run a flow in a test: no server, no files left behind, and no waiting for backoffs and deadlines."""

import concurrent.futures
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.core import Event, ExecutionState, NodeStatus
from pyoco_server.engine import Engine, RunResult, UnknownRunError
from pyoco_server.flows.model import FlowModel
from pyoco_server.testing.counting_executor import CountingExecutor
from pyoco_server.testing.standing import standing
from pyoco_server.testing.watching import Condition, Sight, Watchman


class FlowStuckError(AssertionError):
    """A run did not reach what the test waited for. An AssertionError, which shows the state of the run."""


@dataclass(frozen=True)
class FlowResult:
    """The state and the events of a run, which may have ended."""

    run_id: str
    state: ExecutionState
    results: Mapping[str, Any]
    """What the tasks returned, by name; empty until the run has ended."""
    events: tuple[Event, ...]

    @property
    def status(self) -> str:
        """COMPLETED, FAILED or CANCELED once it has ended."""
        return self.state.status.value


class FlowTester:
    """An engine in memory with a virtual clock; a context manager.

    Virtual time passes only inside :meth:`run`, :meth:`advance` and the methods that wait, and never while a task's
    function runs. What a function does itself (``time.sleep``, ``asyncio.sleep``) takes real time, and
    so does a task's ``timeout_sec``, unless the test moves time past it with ``advance(..., overtake=True)``.
    ``patience_sec`` is the longest real time to wait for anything.
    """

    def __init__(self, *, patience_sec: float = 10.0, cancel_grace_sec: float = 10.0, seed: int = 0) -> None:
        self._patience_sec = patience_sec
        self._watchman = Watchman()
        self._folder = tempfile.TemporaryDirectory(prefix="pyoco-flow-tester-")
        self._engine = Engine(
            clock=self._watchman.clock,
            executor=CountingExecutor(LocalExecutor(threads=32, processes=2), self._watchman.clock),
            artifacts=self._folder.name,
            cancel_grace_sec=cancel_grace_sec,
            seed=seed,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything and remove what was written."""
        try:
            self._engine.close()
        finally:
            self._folder.cleanup()

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self._watchman.clock.now()

    def run(
        self, flow: Flow | FlowModel, params: Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> FlowResult:
        """Run a flow to its end; FlowStuckError if it waits for an answer."""
        return self.wait(self.start(flow, params, run_id=run_id))

    def start(
        self, flow: Flow | FlowModel, params: Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> str:
        """Start a flow and return its run id; virtual time stands still until the test waits for something."""
        return self._engine.start(flow, params, run_id=run_id, listener=self._watchman.listen)

    def wait(self, run_id: str) -> FlowResult:
        """Let time pass until the run has ended; FlowStuckError if it waits for an answer."""
        self._known(run_id)
        sight = self._watchman.wait(run_id, lambda state: state.is_terminal, self._patience_sec)
        waiting = self._waiting(run_id)
        if sight is Sight.STALLED and waiting:
            raise FlowStuckError(
                f"run '{run_id}' has not ended: it waits for somebody to resume {_listed(waiting)}; "
                f"call wait_until_waiting() and resume() first\n{standing(self._known(run_id))}"
            )
        if sight is Sight.LOST_PATIENCE:
            raise self._out_of_patience(run_id, "has not ended")
        ended = self._outcome(run_id)
        return FlowResult(run_id, ended.state, dict(ended.results), tuple(self.events(run_id)))

    def wait_until_waiting(self, run_id: str, node: str) -> None:
        """Let time pass until the node waits for an answer, and stop time there; FlowStuckError if it never does."""
        self.wait_until(run_id, lambda state: _has(state, node, NodeStatus.WAITING), f"node '{node}' waits")

    def wait_until_running(self, run_id: str, node: str) -> None:
        """Let time pass until the node has begun, and stop it there; its function is called about now."""
        self.wait_until(run_id, lambda state: _has(state, node, NodeStatus.RUNNING), f"node '{node}' runs")

    def wait_until(self, run_id: str, condition: Condition, what: str = "the condition holds") -> None:
        """Let time pass until ``condition`` is true of the run's state, and stop it there.

        It is looked at after every commit, on the engine's thread. FlowStuckError, saying ``what`` was waited for, if
        the run ends before that, or goes no further.
        """
        reached = threading.Event()

        def holds_or_ended(state: ExecutionState) -> bool:
            if condition(state):
                reached.set()
            return state.is_terminal or reached.is_set()

        self._known(run_id)
        sight = self._watchman.wait(run_id, holds_or_ended, self._patience_sec)
        if reached.is_set():
            return
        if sight is Sight.LOST_PATIENCE:
            raise self._out_of_patience(run_id, f"has not come to where {what}")
        state = self._known(run_id)
        how = f"ended {state.status.value}" if state.is_terminal else "goes no further"
        raise FlowStuckError(f"run '{run_id}' {how}, and never came to where {what}\n{standing(state)}")

    def resume(self, run_id: str, node: str, value: Any = None, *, key: str | None = None) -> None:  # noqa: ANN401
        """Resume a waiting node; ``value`` becomes its result."""
        self._engine.resume(run_id, node, value, key=key)

    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """Request the cancel of the run; False if it had ended. Then :meth:`wait` for it.

        A function that does not look at ``ctx.is_cancelled`` keeps running and holds time: abandon it with
        ``advance(cancel_grace_sec, overtake=True)``.
        """
        return self._engine.cancel(run_id, reason)

    def advance(self, seconds: float, *, overtake: bool = False) -> None:
        """Let so much virtual time pass by hand; what falls due on the way happens.

        Functions that run are waited for; with ``overtake``, those that run at the beginning are not, and time moves
        past them.
        """
        clock, before = self._watchman.clock, self.now
        given_up = threading.Timer(self._patience_sec, clock.abort_advance)
        given_up.start()
        try:
            clock.advance(seconds, overtake=overtake)
        finally:
            given_up.cancel()
        if self.now - before < timedelta(seconds=seconds):
            raise FlowStuckError(
                f"advance({seconds}) has not got through after {self._patience_sec} s of real time: a task's function "
                "is still running; advance(..., overtake=True) moves time past those that run already"
            )

    def events(self, run_id: str) -> list[Event]:
        """Return the events of a run so far."""
        return self._engine.events(run_id)

    def look(self, run_id: str) -> FlowResult:
        """Return the newest state of a run and its events; the results only when it has ended (see :meth:`wait`)."""
        return FlowResult(run_id, self._known(run_id), {}, tuple(self.events(run_id)))

    # --- How a run stands --------------------------------------------------------------------------------------------

    def _known(self, run_id: str) -> ExecutionState:
        state = self._watchman.state(run_id)
        if state is None:
            raise UnknownRunError(run_id)
        return state

    def _waiting(self, run_id: str) -> list[str]:
        nodes = self._known(run_id).live_nodes()
        return sorted(node.node_id for node in nodes if node.status is NodeStatus.WAITING)

    def _out_of_patience(self, run_id: str, what: str) -> FlowStuckError:
        return FlowStuckError(
            f"run '{run_id}' {what} after {self._patience_sec} s of real time\n{standing(self._known(run_id))}"
        )

    def _outcome(self, run_id: str) -> RunResult:
        """The engine's own result, or its error if it broke down over the run; waits no longer than our patience."""
        box: concurrent.futures.Future[RunResult] = concurrent.futures.Future()

        def fetch() -> None:
            try:
                box.set_result(self._engine.wait(run_id))
            except BaseException as error:  # noqa: BLE001 it is raised where it is waited for
                box.set_exception(error)

        threading.Thread(target=fetch, name=f"end of {run_id}", daemon=True).start()
        try:
            return box.result(self._patience_sec)
        except TimeoutError as error:
            raise self._out_of_patience(run_id, "has not been released by the engine") from error


def _has(state: ExecutionState, node: str, status: NodeStatus) -> bool:
    return node in state.nodes and state.nodes[node].status is status


def _listed(nodes: list[str]) -> str:
    return ", ".join(f"'{node}'" for node in nodes)

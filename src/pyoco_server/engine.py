"""The engine: flows run in this process, with everything a run has but a server.

Runs live in an event log in memory (or any other log it is given). One engine runs any number of flows at once on an
event loop of its own; the plain methods may be called from any thread, their ``_async`` twins from any event loop.
"""

import asyncio
import concurrent.futures
import logging
import random
import secrets
import threading
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.ports import Clock, EventLog, OutputStore, TaskExecutor
from pyoco_server.app.runs.redrive import Redriver, RedriveRequest, cut_of
from pyoco_server.app.runtime.execution import Listener
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.plan_cache import PlanCache
from pyoco_server.app.runtime.results import results_of
from pyoco_server.app.runtime.run import Run, RunServices
from pyoco_server.core import Actor, ActorKind, Event, ExecutionState, fold
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.binding import bind
from pyoco_server.flows.environment import check_exposed
from pyoco_server.flows.from_pyoco import Function, read_flow
from pyoco_server.flows.model import FlowModel
from pyoco_server.flows.names import check_names

T = TypeVar("T")
_log = logging.getLogger(__name__)
REMEMBERED_ENDS = 1_000
_USER = Actor(ActorKind.USER)
_KEY_HERE = secrets.token_bytes(32)
"""Signs pickled results of this process."""


class UnknownRunError(PyocoServerError, KeyError):
    """There is no such run here."""


class EngineClosedError(PyocoServerError, RuntimeError):
    """The engine takes no more work, or cannot take it from where it was asked."""


class RunResult(NamedTuple):
    """How a run ended."""

    run_id: str
    state: ExecutionState
    results: Mapping[str, Any]

    @property
    def status(self) -> str:
        """COMPLETED, FAILED or CANCELED."""
        return self.state.status.value


def _guarded(listener: Listener) -> Listener:
    """Return the listener as one whose errors are logged and not raised."""

    def listen(events: Sequence[Event], state: ExecutionState) -> None:
        try:
            listener(events, state)
        except Exception:  # noqa: BLE001 an error of a listener must not end the run
            _log.exception("a listener failed", extra={"action": "listener_failed", "run_id": state.execution_id})

    return listen


def _authored(flow: Flow | FlowModel) -> tuple[FlowModel, Mapping[str, Function]]:
    if isinstance(flow, FlowModel):
        check_exposed(flow.expose_env, None)
        functions = bind(flow)
        check_names(flow, functions)
        return flow, functions
    return read_flow(flow)


class Engine:
    """Runs flows; close it, or use it as a context manager."""

    def __init__(  # noqa: PLR0913 everything is optional, and by name
        self,
        *,
        log: EventLog | None = None,
        clock: Clock | None = None,
        threads: int = 32,
        processes: int = 4,
        artifacts: str | Path = "artifacts",
        cancel_grace_sec: float = 10.0,
        seed: int | None = None,
        executor: TaskExecutor | None = None,
        outputs: OutputStore | None = None,
        result_key: str | None = None,
    ) -> None:
        """Start the engine's thread.

        ``result_key`` signs results that are pickled, as PYOCO_RESULT_KEY does. Without it all engines of this process,
        and no others, share a key.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pyoco-engine", daemon=True)
        self._thread.start()
        self._log = log or MemoryEventLog()
        self._executor: TaskExecutor = executor or LocalExecutor(
            threads=threads, processes=processes, shield_sec=cancel_grace_sec
        )
        self._outputs = outputs or MemoryOutputStore()
        self._services = RunServices(
            log=self._log,
            clock=clock or SystemClock(),
            new_id=uuid_maker(),
            executor=self._executor,
            outputs=Outputs(self._outputs, key=_KEY_HERE if result_key is None else result_key.encode()),
            plans=PlanCache(),
            artifacts=Path(artifacts),
            worker_mark=f"engine-{uuid.uuid4()}",
            grace_sec=cancel_grace_sec,
            chance=random.Random(seed),  # noqa: S311 pauses, not secrets
        )
        self._close_lock = threading.Lock()
        self._closing = False
        self._runs: dict[str, Run] = {}
        self._ends: dict[str, asyncio.Task[RunResult]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop driving; runs that have not ended stay as their logs have them."""
        with self._close_lock:
            if self._loop.is_closed():
                return
            self._closing = True
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # --- From any thread ---------------------------------------------------------------------------------------------

    def run(
        self, flow: Flow | FlowModel, params: Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> RunResult:
        """Run a flow to its end."""
        return self._await(self._run_to_the_end(flow, params or {}, run_id or str(uuid.uuid4())))

    def start(
        self,
        flow: Flow | FlowModel,
        params: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        listener: Listener | None = None,
    ) -> str:
        """Start a flow and return its run id.

        ``listener`` is called with every commit, in the order of the log, on the engine's own thread: it must be quick.
        """
        return self._await(self._start(flow, params or {}, run_id or str(uuid.uuid4()), listener))

    def take_up(self, flow: Flow | FlowModel, run_id: str) -> str:
        """Continue a run that another process left in the log, on the graph in the log; the flow gives functions."""
        return self._await(self._resume_from_log(flow, run_id))

    def redrive(
        self,
        flow: Flow | FlowModel,
        run_id: str,
        *,
        from_: str | Sequence[str] = "failed",
        params: Mapping[str, Any] | None = None,
        ask_again: Sequence[str] = (),
    ) -> str:
        """Repeat an ended run as a new one, and return its id: what succeeded is kept, what failed runs again.

        ``from_``: "start" repeats everything; names of nodes or tasks also repeat those and everything behind them.
        ``params`` replace those of the old run, ``ask_again`` names waits whose answers are not kept.
        """
        cut = cut_of(from_)
        request = RedriveRequest(cut=cut, params=dict(params or {}), ask_again=tuple(ask_again))
        return self._await(self._redriven(flow, run_id, request))

    def wait(self, run_id: str) -> RunResult:
        """Wait for a run to end."""
        return self._await(self._wait(run_id))

    def cancel(self, run_id: str, reason: str | None = None, *, immediate: bool = False) -> bool:
        """Request the cancel of a run; False if it had ended.

        Tasks at work are asked to stop and get ``cancel_grace_sec``; with ``immediate`` they are abandoned at once.
        """
        return self._await(self._cancel(run_id, reason, immediate=immediate))

    def resume(self, run_id: str, node: str, value: Any = None, *, key: str | None = None) -> None:  # noqa: ANN401
        """Resume a waiting node; ``value`` becomes its result."""
        self._await(self._run(run_id).resume(node, value, _USER, key=key))

    def get(self, run_id: str) -> ExecutionState:
        """Return the newest state of a run."""
        return fold(self.events(run_id))

    def events(self, run_id: str) -> list[Event]:
        """Return all events of a run."""
        events, _ = self._await(self._log.read(run_id))
        if not events:
            raise UnknownRunError(run_id)
        return list(events)

    # --- From any event loop -----------------------------------------------------------------------------------------

    async def run_async(
        self, flow: Flow | FlowModel, params: Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> RunResult:
        """Run a flow to its end; cancelling this does not cancel the run."""
        return await self._here(self._run_to_the_end(flow, params or {}, run_id or str(uuid.uuid4())))

    async def cancel_async(self, run_id: str, reason: str | None = None, *, immediate: bool = False) -> bool:
        """Request the cancel of a run; False if it had ended."""
        return await self._here(self._cancel(run_id, reason, immediate=immediate))

    async def resume_async(self, run_id: str, node: str, value: Any = None, *, key: str | None = None) -> None:  # noqa: ANN401
        """Resume a waiting node; ``value`` becomes its result."""
        await self._here(self._run(run_id).resume(node, value, _USER, key=key))

    # --- On the engine's loop ----------------------------------------------------------------------------------------

    async def _start(
        self, flow: Flow | FlowModel, params: Mapping[str, Any], run_id: str, listener: Listener | None = None
    ) -> str:
        model, functions = _authored(flow)
        run = Run(run_id, model, functions, self._services)
        if listener is not None:
            run.subscribe(_guarded(listener))
        await run.create(params, _USER)
        self._go_on(run)
        return run_id

    async def _run_to_the_end(self, flow: Flow | FlowModel, params: Mapping[str, Any], run_id: str) -> RunResult:
        return await self._wait(await self._start(flow, params, run_id))

    async def _resume_from_log(self, flow: Flow | FlowModel, run_id: str) -> str:
        events, _ = await self._log.read(run_id)
        if not events:
            raise UnknownRunError(run_id)
        if run_id in self._runs:  # this engine drives it already
            return run_id
        model, functions = _authored(flow)
        self._go_on(Run(run_id, model, functions, self._services))
        return run_id

    async def _redriven(self, flow: Flow | FlowModel, run_id: str, request: RedriveRequest) -> str:
        events, _ = await self._log.read(run_id)
        if not events:
            raise UnknownRunError(run_id)
        services = self._services
        redriver = Redriver(log=self._log, outputs=self._outputs, clock=services.clock, new_id=services.new_id)
        new = await redriver.prepare(events, request, _USER, str(uuid.uuid4()))
        await redriver.begin(new)
        return await self._resume_from_log(flow, new.run_id)

    def _go_on(self, run: Run) -> None:
        self._runs[run.run_id] = run
        self._ends[run.run_id] = asyncio.create_task(self._to_the_end(run), name=f"run {run.run_id}")
        self._forget_old_ends()

    def _forget_old_ends(self) -> None:
        """Keep the results of the newest ended runs only; the log has the rest."""
        if len(self._ends) > REMEMBERED_ENDS:
            for run_id in [run_id for run_id, end in self._ends.items() if end.done()][: REMEMBERED_ENDS // 2]:
                del self._ends[run_id]

    async def _to_the_end(self, run: Run) -> RunResult:
        try:
            state = await run.drive_to_end()
            return RunResult(run.run_id, state, run.results)
        finally:
            self._runs.pop(run.run_id, None)

    async def _wait(self, run_id: str) -> RunResult:
        end = self._ends.get(run_id)
        if end is not None:
            return await asyncio.shield(end)
        events, _ = await self._log.read(run_id)
        if not events or not (state := fold(events)).is_terminal:
            raise UnknownRunError(run_id)
        return RunResult(run_id, state, await results_of(events, self._services.outputs))

    async def _stop(self) -> None:
        going = [end for end in self._ends.values() if not end.done()]
        for end in going:
            end.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await self._executor.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:  # callers that still wait for something must not wait for ever
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)

    async def _cancel(self, run_id: str, reason: str | None, *, immediate: bool) -> bool:
        run = self._runs.get(run_id)
        return await run.cancel(reason, _USER, immediate=immediate) if run is not None else False

    def _run(self, run_id: str) -> Run:
        found = self._runs.get(run_id)
        if found is None:
            raise UnknownRunError(run_id)
        return found

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise EngineClosedError("a listener cannot wait for the engine that calls it: use another thread")
        return self._submit(work).result()

    async def _here(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._closing:
            work.close()
            raise EngineClosedError("the engine is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

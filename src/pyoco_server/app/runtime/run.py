"""One run in one process: puts together what drives it, starts it if it has not started, and says how driving ended.

A run that has started is driven on the graph and the steps in its log, whatever the worker's flow of that name looks
like by now. The worker's flow gives the functions, by the names of tasks.

The parts, each in a module of its own: :class:`.Execution` reads and writes the log, :class:`.RunDriver` decides what
happens next, :class:`.NodeExecutor` executes attempts at nodes. Listeners on the log keep results, deadlines of waits,
crashes and the start fence up to date.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pyoco_server.app.ports import Clock, EventLog, NewId, TaskExecutor
from pyoco_server.app.runtime.attempt import Function
from pyoco_server.app.runtime.context import RunScope
from pyoco_server.app.runtime.crashes import HANDED_BACK, CrashHistory
from pyoco_server.app.runtime.driver import DriveOutcome, RunDriver
from pyoco_server.app.runtime.execution import Execution, Listener
from pyoco_server.app.runtime.node_commands import NodeCommands
from pyoco_server.app.runtime.node_executor import NodeExecutor
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.plan_cache import CODE, PlanCache, RunPlan
from pyoco_server.app.runtime.results import ResultKeeper
from pyoco_server.app.runtime.start_fence import StartFence
from pyoco_server.app.runtime.unused_params import unused_params, warnings_of
from pyoco_server.app.runtime.wait_deadlines import WaitDeadlines, deadline_error
from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    CommandRejected,
    Commit,
    Event,
    ExecutionState,
    graph_from_log,
)
from pyoco_server.core.commands import (
    CancelExecution,
    CreateExecution,
    FailNode,
    ReportNodeProgress,
    ResumeNode,
    StartExecution,
)
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.definitions import sha256_of
from pyoco_server.flows.environment import visible_names
from pyoco_server.flows.limits import NO_LIMITS, RunLimits
from pyoco_server.flows.model import FlowModel, Isolation
from pyoco_server.values.codec import carried, received


class RunServices(NamedTuple):
    """What all runs of a process share."""

    log: EventLog
    clock: Clock
    new_id: NewId
    executor: TaskExecutor
    outputs: Outputs
    plans: PlanCache
    artifacts: Path
    worker_mark: str
    """The name of this process in the log."""
    grace_sec: float
    chance: random.Random
    wheels: Mapping[str, str] = MappingProxyType({})
    """Wheels in use, as the log is to name them; they may change between runs."""
    isolation: Isolation | None = None
    """Where plain functions run whose task does not say."""
    expose_env: tuple[str, ...] | None = None
    """Patterns of the environment variables that a flow.yaml may see if it lists them; None: any it lists."""
    limits: RunLimits = NO_LIMITS


class CodeMissingError(PyocoServerError):
    """A run needs tasks that the flow it was handed over with does not have."""


class _Session(NamedTuple):
    """What a run has while a process drives it."""

    scope: RunScope
    keeper: ResultKeeper
    started: Sequence[str]
    """Nodes that this process has started in the log and not executed yet."""


def _started_in(events: Sequence[Event]) -> list[str]:
    return [payload.node_id for event in events if type(payload := event.payload) is NodeStarted]


_log = logging.getLogger(__name__)
_SCHEDULER = Actor(ActorKind.SCHEDULER, "engine")


class Run:
    """A run that this process drives."""

    def __init__(
        self,
        run_id: str,
        model: FlowModel | None,
        functions: Mapping[str, Function],
        services: RunServices,
        *,
        late_sec: float | None = None,
        is_sole_owner: bool = False,
    ) -> None:
        """``model``: the worker's flow of that name; None if it has none, which only a run with a graph can do without.

        ``late_sec``: no function is called so long after its attempt started without reading the log first. Needed
        where other processes may take over the run. ``is_sole_owner``: no other process drives the run now.
        """
        self.run_id = run_id
        self._model = model
        self._functions = functions
        self._services = services
        self._plan = self._planned()
        self._execution = Execution(
            run_id, self._plan.graph, log=services.log, clock=services.clock, new_id=services.new_id
        )
        self._execution.is_sole_owner = is_sole_owner
        self._commands = NodeCommands(
            run_id,
            functions,
            worker_mark=services.worker_mark,
            clock=services.clock,
            code=None if model is None else sha256_of(self._plan.graph, services.wheels),
            wheels=services.wheels,
        )
        self._commands.drive_on(self._plan)
        self._is_on_log = False
        """Is the run driven on the graph in its log? Else on the flow's, which its log is about to get."""
        self._execution.subscribe(self._commands.listen)
        self._crashes = CrashHistory()
        self._execution.subscribe(self._crashes.listen)
        self._fence = (
            StartFence(self._execution, services.worker_mark, late_sec=late_sec) if late_sec is not None else None
        )
        self.at_boundary: Callable[[], Awaitable[None]] | None = None
        """Awaited when a task has ended, before that is reported."""
        self.was_started_elsewhere = False
        """Did another process start the run, or resume it, when this one was about to?"""
        self._scope: RunScope | None = None
        self._known: list[Event] = []
        self._started: list[str] = []
        self._changed = asyncio.Event()
        changed = self._changed
        self._execution.subscribe(lambda *_: changed.set())

    @property
    def state(self) -> ExecutionState:
        """The newest known state."""
        return self._execution.state

    @property
    def execution(self) -> Execution:
        """The cursor on the run's log, for decisions from outside the flow."""
        return self._execution

    @property
    def position(self) -> int:
        """The position in the log that the state includes."""
        return self._execution.position

    def subscribe(self, listener: Listener) -> None:
        """Have the listener called with every commit, in the order of the log."""
        self._execution.subscribe(listener)

    @property
    def results(self) -> Mapping[str, Any]:
        """What the tasks returned so far, by name, as far as this process has driven the run."""
        return {} if self._scope is None else self._scope.results

    async def create(self, params: Mapping[str, Any], actor: Actor) -> None:
        """Create and start the run, as one commit, the first of its log."""
        given = carried("params", {**self._plan.defaults, **params})  # refuses what the log cannot hold
        create = CreateExecution(
            execution_id=self.run_id, actor=actor, graph_id=self._execution.graph.graph_id, input=given
        )
        start = StartExecution(execution_id=self.run_id, actor=actor, extra={CODE: self._commands.code})

        def beginning(state: ExecutionState) -> Commit:
            created = self._execution.step(state, create)
            started = self._execution.step(created.state, start)
            return Commit(created.events + started.events, started.state)

        self._note_unused(params)
        self._execution.follow_ups = self._commands.follow_ups
        self._known = await self._execution.decide(beginning)
        self._started = _started_in(self._known)

    def begin_at(self, events: Sequence[Event], position: int) -> None:
        """Begin with these events, all that the log has up to ``position``, instead of reading them."""
        self._drive_on_log(events)
        self._execution.begin_at(events, position)
        self._known = [*events]

    async def catch_up(self) -> None:
        """Read what other processes wrote."""
        await self._execution.load()

    async def drive_to_end(self) -> ExecutionState:
        """Drive the run to its end, from wherever its log stands; waits as long as the run does.

        CodeMissingError if tasks that are next are not in the flow: no other process could have them.
        """
        async with self._session() as session:
            started = session.started
            while not self.state.is_terminal:
                self._changed.clear()
                outcome = await self._drive(session, started)
                if outcome is DriveOutcome.TAKEN_OVER:
                    await self._watch()
                elif outcome is DriveOutcome.HELD:
                    raise CodeMissingError(f"run {self.run_id} needs {', '.join(self.needs)}, which the flow lacks")
                elif outcome is DriveOutcome.PARKED:
                    await self._changed.wait()
                started = ()
            await session.keeper.fetch(self._services.outputs)
        return self.state

    async def _watch(self) -> None:
        """Wait for the end of a run that another process drives."""
        while not self.state.is_terminal:
            self._changed.clear()
            await self._changed.wait()

    async def drive_until_rest(self) -> DriveOutcome:
        """Drive the run until it ends or nothing can run here. When it has ended, its listeners are forgotten."""
        async with self._session() as session:
            if self.was_started_elsewhere:
                outcome = DriveOutcome.TAKEN_OVER
            elif self.state.is_terminal:
                outcome = DriveOutcome.ENDED
            else:
                outcome = await self._drive(session, session.started)
        if outcome is DriveOutcome.ENDED:
            self._execution.forget_listeners()
        return outcome

    async def cancel(self, reason: str | None, actor: Actor, *, immediate: bool = False) -> bool:
        """Request the run's cancel; False if it has ended already.

        ``immediate`` ends it now: calls in progress are abandoned, without their grace.
        """
        mode = CancelMode.IMMEDIATE if immediate else CancelMode.WAIT_FOR_WORKERS
        await self._execution.do(
            CancelExecution(execution_id=self.run_id, actor=actor, reason=reason), cancel_mode=mode
        )
        return self.state.is_cancel_requested

    async def hand_back(self) -> None:
        """Write into the log that this process returns its tasks: that it stops does not count as a crash of theirs."""

        def decision(state: ExecutionState) -> Commit:
            events: list[Event] = []
            for node in self.state.live_nodes():
                if (
                    node.is_at_work
                    and node.worker_id == self._services.worker_mark
                    and self._crashes.is_running_code(node, self._commands.steps.get(node.node_id))
                ):
                    returned = self._commands.command(
                        ReportNodeProgress, node.node_id, attempt=node.attempt, extra={HANDED_BACK: True}
                    )
                    made = self._execution.step(state, returned)
                    events, state = events + made.events, made.state
            return Commit(events, state)

        with contextlib.suppress(CommandRejected):  # cancelled, or another worker has started a task again
            await self._execution.decide(decision)

    async def resume(self, node_id: str, value: Any, actor: Actor, *, key: str | None = None) -> None:  # noqa: ANN401
        """Resume a waiting node with ``value``; CommandRejected if it does not wait.

        DecodeError for a value that the tags of built-in types do not cover.
        """
        brought = carried("input", value)
        await self._execution.do(
            ResumeNode(execution_id=self.run_id, actor=actor, node_id=node_id, resume_key=key, extra=brought)
        )

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        """Follow the log while the process drives the run, and start the run if it has not started."""
        self._execution.subscribe(self._remember)
        unfollow = await self._execution.follow()
        if not self._known:
            await self._execution.load()
            self._drive_on_log(self._known)
        self._execution.unsubscribe(self._remember)
        events = self._known
        given = received("params", self.state.input or {}) or {}
        self._note_unused(given)
        artifacts = os.path.join(self._services.artifacts, self.run_id)  # noqa: PTH118 for every run: a Path takes far longer
        flow_name = self._execution.graph.graph_id if self._model is None else self._model.name
        listed = () if self._model is None else self._model.expose_env
        visible = visible_names(listed, self._services.expose_env)
        params = {**self._plan.defaults, **given}
        self._scope = RunScope(self.run_id, flow_name, params, artifacts, visible=visible)
        keeper = ResultKeeper(self._scope, self.run_id)
        deadlines = WaitDeadlines(self._services.clock, self._expire)
        listeners = (keeper.listen, deadlines.listen)
        for listen in listeners:
            listen(events, self.state)
            self._execution.subscribe(listen)
        try:
            started = [*self._started, *_started_in(await self._start())]
            self._known, self._started = [], []
            yield _Session(self._scope, keeper, started)
        finally:
            for listen in listeners:
                self._execution.unsubscribe(listen)
            deadlines.close()
            unfollow()

    def _note_unused(self, given: Mapping[str, Any]) -> None:
        """Name parameters that nothing takes, in the log and in warnings: they may be mistyped, which is no error."""
        if self._is_on_log or self._model is None:
            self._commands.forgo_unused()
            return
        self._commands.unused = unused = unused_params(self._model, self._functions, given)
        if self.state.started_at is None:
            for sentence in warnings_of(unused):
                _log.warning(sentence, extra={"action": "param_unused", "run_id": self.run_id})

    def _planned(self) -> RunPlan:
        """The plan of a run that has no graph yet: that of the worker's flow."""
        if self._model is None:
            return RunPlan(graph_from_log(()), {}, frozenset(), {})
        made = self._services.plans.of(self._model)
        return RunPlan(made.graph, made.steps, frozenset(), self._model.defaults)

    def _drive_on_log(self, events: Sequence[Event]) -> None:
        """Drive the run on the graph in its log from now on, if it has one."""
        found = self._services.plans.of_log(events, self._model) if len(events) > 1 else None
        if found is not None:
            self._plan, self._is_on_log = found, True
            self._execution.graph = found.graph
            self._commands.drive_on(found)

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of code that this process lacks and nodes that are next need."""
        return self._commands.needs(self.state)

    def _remember(self, events: Sequence[Event], _: ExecutionState) -> None:
        self._known += events

    async def _start(self) -> list[Event]:
        """Start the run unless it has started, or is to be cancelled; return the events of our commit."""
        if self.state.started_at is not None or self.state.is_cancel_requested or self.state.is_terminal:
            return []
        self._execution.follow_ups = self._commands.follow_ups
        try:
            start = StartExecution(execution_id=self.run_id, actor=_SCHEDULER, extra={CODE: self._commands.code})
            started = await self._execution.do(start)
        except CommandRejected:  # it was cancelled
            started = []
        finally:
            self._execution.follow_ups = None
        newest, me = self._execution.state, self._services.worker_mark
        # When our start is found in the log only after a while, another process may have resumed the run behind it.
        is_ours = bool(started) and all(node.worker_id in {None, me} for node in newest.nodes.values())
        self.was_started_elsewhere = not (is_ours or newest.is_cancel_requested or newest.is_terminal)
        if not started and newest.nodes:  # another worker has started it, perhaps on another graph
            self._drive_on_log((await self._services.log.read(self.run_id))[0])
        return started

    async def _drive(self, session: _Session, started: Sequence[str]) -> DriveOutcome:
        services = self._services
        nodes = NodeExecutor(
            self._execution,
            self._commands,
            self._functions,
            session.scope,
            session.keeper,
            executor=services.executor,
            outputs=services.outputs,
            chance=services.chance,
            fence=self._fence,
            isolation=services.isolation,
            limits=services.limits,
            at_boundary=self.at_boundary,
        )
        driver = RunDriver(
            self._execution,
            self._commands,
            nodes,
            crashes=self._crashes,
            chance=services.chance,
            grace_sec=services.grace_sec,
            fence=self._fence,
        )
        return await driver.drive(started)

    async def _expire(self, node_id: str, said: JsonObject) -> None:
        """End a wait whose deadline has passed: with its default, or as failed; not if it was resumed just before."""
        try:
            if "default" in said:
                await self.resume(node_id, said["default"], _SCHEDULER)
            else:
                error = deadline_error(node_id)
                failing = FailNode(execution_id=self.run_id, actor=_SCHEDULER, node_id=node_id, error=error)
                await self._execution.do(failing)
        except CommandRejected:
            return

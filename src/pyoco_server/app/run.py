"""One run from submission to end: drives its execution, parks it while it only waits, holds it where code is missing.

A run that has started is driven on the graph and the steps in its log, whatever the worker's flow of that name looks
like by now. The worker's flow gives the functions, by the names of tasks.
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

from pyoco_server.app.attempts import Function
from pyoco_server.app.blocks import run_block
from pyoco_server.app.context import RunScope
from pyoco_server.app.crashes import HANDED_BACK, CrashHistory
from pyoco_server.app.deadlines import Deadlines
from pyoco_server.app.driver import Driver, Rest
from pyoco_server.app.execution import Execution, Listener
from pyoco_server.app.fencing import Fencing
from pyoco_server.app.outputs import Outputs
from pyoco_server.app.plans import CODE, Plans, RunPlan
from pyoco_server.app.ports import Clock, EventLog, NewId, Workshop
from pyoco_server.app.results import ResultKeeper
from pyoco_server.app.starting import Starter
from pyoco_server.app.unused_params import unused_params
from pyoco_server.app.unused_told import told_of
from pyoco_server.app.work import Work
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
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.definitions import sha256_of
from pyoco_server.flows.model import FlowModel, Isolation
from pyoco_server.values.codec import carried, received


class RunServices(NamedTuple):
    """What all runs of a process share."""

    log: EventLog
    clock: Clock
    new_id: NewId
    workshop: Workshop
    outputs: Outputs
    plans: Plans
    artifacts: Path
    worker_id: str
    grace_sec: float
    chance: random.Random
    wheels: Mapping[str, str] = MappingProxyType({})
    """Those in use, as the log is to name them; they may change between runs."""
    isolation: Isolation | None = None
    """Where plain functions run whose task does not say."""


class CodeMissingError(PyocoServerError):
    """A run needs tasks that the flow it was handed over with does not have."""


class _Attended(NamedTuple):
    """What a run has while a process takes care of it."""

    scope: RunScope
    keeper: ResultKeeper
    begun: Sequence[str]
    """Nodes this process has begun and not performed yet."""


def _begun_in(events: Sequence[Event]) -> list[str]:
    return [payload.node_id for event in events if type(payload := event.payload) is NodeStarted]


_log = logging.getLogger(__name__)
_SCHEDULER = Actor(ActorKind.SCHEDULER, "engine")


class Run:
    """A run this process takes care of."""

    def __init__(
        self,
        run_id: str,
        model: FlowModel | None,
        functions: Mapping[str, Function],
        services: RunServices,
        *,
        late_sec: float | None = None,
        is_ours_alone: bool = False,
    ) -> None:
        """``model``: the worker's flow of that name; None if it has none, which only a run with a graph can do without.

        ``late_sec``: no function is called so long after its attempt began without a look at the log. Needed where
        others may take over the run. ``is_ours_alone``: nobody else has it in hand now.
        """
        self.run_id = run_id
        self._model = model
        self._functions = functions
        self._services = services
        self._plan = self._planned()
        self._execution = Execution(
            run_id, self._plan.graph, log=services.log, clock=services.clock, new_id=services.new_id
        )
        self._execution.is_ours_alone = is_ours_alone
        self._starter = Starter(
            run_id,
            functions,
            worker_id=services.worker_id,
            clock=services.clock,
            code=None if model is None else sha256_of(self._plan.graph, services.wheels),
            wheels=services.wheels,
        )
        self._starter.drive_on(self._plan)
        self._is_on_log = False
        """Is the run driven on the graph in its log? Else on the flow's, which its log is about to get."""
        self._execution.subscribe(self._starter.listen)
        self._crashes = CrashHistory()
        self._execution.subscribe(self._crashes.listen)
        self._fencing = (
            Fencing(self._execution, services.worker_id, late_sec=late_sec) if late_sec is not None else None
        )
        self.at_boundary: Callable[[], Awaitable[None]] | None = None
        """Awaited when a task has ended, before that is reported."""
        self.was_started_elsewhere = False
        """Did somebody else start the run, or go on with it, when this process was about to?"""
        self._scope: RunScope | None = None
        self._known: list[Event] = []
        self._begun: list[str] = []
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
        """Where in the log the state is."""
        return self._execution.position

    def subscribe(self, listener: Listener) -> None:
        """Be told of every commit, in the order of the log."""
        self._execution.subscribe(listener)

    @property
    def results(self) -> Mapping[str, Any]:
        """What the tasks returned so far, by name, as far as this process has gone on with the run."""
        return {} if self._scope is None else self._scope.results

    async def create(self, params: Mapping[str, Any], actor: Actor) -> None:
        """Write the beginning of the log, as one commit: the run exists and is set going."""
        given = carried("params", {**self._plan.defaults, **params})  # whatever the log cannot hold is refused here
        create = CreateExecution(
            execution_id=self.run_id, actor=actor, graph_id=self._execution.graph.graph_id, input=given
        )
        start = StartExecution(execution_id=self.run_id, actor=actor, extra={CODE: self._starter.code})

        def beginning(state: ExecutionState) -> Commit:
            created = self._execution.step(state, create)
            started = self._execution.step(created.state, start)
            return Commit(created.events + started.events, started.state)

        self._note_unused(params)
        self._execution.follow_ups = self._starter.follow_ups
        self._known = await self._execution.decide(beginning)
        self._begun = _begun_in(self._known)

    def begin_at(self, events: Sequence[Event], position: int) -> None:
        """Take as known what is in the log up to ``position``, so that it need not be read."""
        self._drive_on_log(events)
        self._execution.begin_at(events, position)
        self._known = [*events]

    async def look(self) -> None:
        """See whether others wrote anything."""
        await self._execution.load()

    async def go_on(self) -> ExecutionState:
        """Take the run to its end, from wherever its log stands; waits as long as the run does.

        CodeMissingError if tasks that are next are not in the flow: there is nobody else who could have them.
        """
        async with self._attended() as attended:
            begun = attended.begun
            while not self.state.is_terminal:
                self._changed.clear()
                rest = await self._drive(attended, begun)
                if rest is Rest.TAKEN_OVER:
                    await self._watch()
                elif rest is Rest.HELD:
                    raise CodeMissingError(f"run {self.run_id} needs {', '.join(self.needs)}, which the flow lacks")
                elif rest is Rest.PARKED:
                    await self._changed.wait()
                begun = ()
            await attended.keeper.fetch(self._services.outputs)
        return self.state

    async def _watch(self) -> None:
        """Somebody else goes on with the run: do not take it from them, only see how it ends."""
        while not self.state.is_terminal:
            self._changed.clear()
            await self._changed.wait()

    async def until_rest(self) -> Rest:
        """Take the run as far as it goes without waiting for anybody. Of one that has ended nobody is told any more."""
        async with self._attended() as attended:
            if self.was_started_elsewhere:
                rest = Rest.TAKEN_OVER
            elif self.state.is_terminal:
                rest = Rest.ENDED
            else:
                rest = await self._drive(attended, attended.begun)
        if rest is Rest.ENDED:
            self._execution.forget_listeners()
        return rest

    async def cancel(self, reason: str | None, actor: Actor, *, immediate: bool = False) -> bool:
        """Ask for the run to be cancelled; False if it has ended already.

        ``immediate`` ends it now: what is at work is given up on, without its grace.
        """
        mode = CancelMode.IMMEDIATE if immediate else CancelMode.WAIT_FOR_WORKERS
        await self._execution.do(
            CancelExecution(execution_id=self.run_id, actor=actor, reason=reason), cancel_mode=mode
        )
        return self.state.is_cancel_requested

    async def hand_back(self) -> None:
        """Write into the log that this process leaves its tasks in good order: that it stops is not their fault."""

        def decision(state: ExecutionState) -> Commit:
            events: list[Event] = []
            for node in self.state.live_nodes():
                if (
                    node.is_at_work
                    and node.worker_id == self._services.worker_id
                    and self._starter.is_task(node.node_id)
                ):
                    left = self._starter.command(
                        ReportNodeProgress, node.node_id, attempt=node.attempt, extra={HANDED_BACK: True}
                    )
                    made = self._execution.step(state, left)
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
    async def _attended(self) -> AsyncIterator[_Attended]:
        """Take notice of everything that happens to the run, and begin it if nobody has."""
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
        self._scope = RunScope(self.run_id, flow_name, {**self._plan.defaults, **given}, artifacts)
        keeper = ResultKeeper(self._scope, self.run_id)
        deadlines = Deadlines(self._services.clock, self._expire)
        listeners = (keeper.listen, deadlines.listen)
        for listen in listeners:
            listen(events, self.state)
            self._execution.subscribe(listen)
        try:
            begun = [*self._begun, *_begun_in(await self._start())]
            self._known, self._begun = [], []
            yield _Attended(self._scope, keeper, begun)
        finally:
            for listen in listeners:
                self._execution.unsubscribe(listen)
            deadlines.close()
            unfollow()

    def _note_unused(self, given: Mapping[str, Any]) -> None:
        """A parameter that nothing takes may be mistyped: that is no error, but the log and a warning name it."""
        if self._is_on_log or self._model is None:
            self._starter.forgo_unused()
            return
        self._starter.unused = unused = unused_params(self._model, self._functions, given)
        if self.state.started_at is None:
            for sentence in told_of(unused):
                _log.warning(sentence, extra={"action": "param_unused", "run_id": self.run_id})

    def _planned(self) -> RunPlan:
        """What a run without a graph is driven on: the worker's flow."""
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
            self._starter.drive_on(found)

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of code that this process lacks and nodes that are next need."""
        return self._starter.needs(self.state)

    def _remember(self, events: Sequence[Event], _: ExecutionState) -> None:
        self._known += events

    async def _start(self) -> list[Event]:
        if self.state.started_at is not None or self.state.is_cancel_requested or self.state.is_terminal:
            return []
        self._execution.follow_ups = self._starter.follow_ups
        try:
            start = StartExecution(execution_id=self.run_id, actor=_SCHEDULER, extra={CODE: self._starter.code})
            started = await self._execution.do(start)
        except CommandRejected:  # somebody has cancelled it
            started = []
        finally:
            self._execution.follow_ups = None
        newest, me = self._execution.state, self._services.worker_id
        # When our start is found in the log only after a while, others may have gone on with the run behind it.
        is_ours = bool(started) and all(node.worker_id in {None, me} for node in newest.nodes.values())
        self.was_started_elsewhere = not (is_ours or newest.is_cancel_requested or newest.is_terminal)
        if not started and newest.nodes:  # another worker has started it, perhaps on another graph
            self._drive_on_log((await self._services.log.read(self.run_id))[0])
        return started

    async def _drive(self, attended: _Attended, begun: Sequence[str]) -> Rest:
        driver = Driver(self._execution, follow_ups=self._starter.follow_ups, grace_sec=self._services.grace_sec)
        work = Work(
            driver,
            self._starter,
            self._functions,
            attended.scope,
            attended.keeper,
            workshop=self._services.workshop,
            outputs=self._services.outputs,
            run_block=run_block,
            chance=self._services.chance,
            crashes=self._crashes,
            fencing=self._fencing,
            isolation=self._services.isolation,
            at_boundary=self.at_boundary,
        )
        rest = await driver.drive(work, begun)
        return Rest.HELD if rest is Rest.PARKED and self.needs else rest

    async def _expire(self, node_id: str, said: JsonObject) -> None:
        """A wait's deadline has passed; somebody may have been quicker, and then there is nothing to do."""
        try:
            if "default" in said:
                await self.resume(node_id, said["default"], _SCHEDULER)
            else:
                error = {"code": "WAIT_DEADLINE", "message": f"nobody resumed '{node_id}' in time"}
                await self._execution.do(
                    FailNode(execution_id=self.run_id, actor=_SCHEDULER, node_id=node_id, error=error)
                )
        except CommandRejected:
            return

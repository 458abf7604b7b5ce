"""One run from submission to end: drives its execution, puts it aside while it only waits, and takes it up again."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyoco_server.app.attempts import Function
from pyoco_server.app.blocks import run_block
from pyoco_server.app.context import RunScope
from pyoco_server.app.deadlines import Deadlines
from pyoco_server.app.driver import Driver, Rest
from pyoco_server.app.execution import Execution, Listener
from pyoco_server.app.ports import Clock, EventLog, NewId, Workshop
from pyoco_server.app.results import ResultKeeper
from pyoco_server.app.work import Work
from pyoco_server.core import Actor, ActorKind, CommandRejected, Event, ExecutionState, advance, fold
from pyoco_server.core.commands import CancelExecution, CreateExecution, FailNode, ResumeNode, StartExecution
from pyoco_server.core.wire import JsonObject, parse_object
from pyoco_server.flows.model import FlowModel
from pyoco_server.flows.plan import plan


class RunServices(NamedTuple):
    """What all runs of a process share."""

    log: EventLog
    clock: Clock
    new_id: NewId
    workshop: Workshop
    artifacts: Path
    worker_id: str
    grace_sec: float
    chance: random.Random


_SCHEDULER = Actor(ActorKind.SCHEDULER, "engine")


class Run:
    """A run this process takes care of."""

    def __init__(self, run_id: str, model: FlowModel, functions: Mapping[str, Function], services: RunServices) -> None:
        self.run_id = run_id
        self._model = model
        self._functions = functions
        self._services = services
        self._plan = plan(model)
        self._execution = Execution(
            run_id, self._plan.graph, log=services.log, clock=services.clock, new_id=services.new_id
        )
        self._results: Mapping[str, Any] = {}
        self._begun: list[Event] = []
        self._changed = asyncio.Event()
        self._execution.subscribe(lambda *_: self._changed.set())

    @property
    def state(self) -> ExecutionState:
        """The newest known state."""
        return self._execution.state

    def subscribe(self, listener: Listener) -> None:
        """Be told of every commit, in the order of the log."""
        self._execution.subscribe(listener)

    @property
    def results(self) -> Mapping[str, Any]:
        """What the tasks returned so far, by name, as far as this process has gone on with the run."""
        return self._results

    async def create(self, params: Mapping[str, Any], actor: Actor) -> None:
        """Write the beginning of the log, as one commit: the run exists and is set going."""
        given = parse_object({**self._model.defaults, **params})  # whatever the log cannot hold is refused here
        create = CreateExecution(
            execution_id=self.run_id, actor=actor, graph_id=self._plan.graph.graph_id, input={"params": given}
        )
        start = StartExecution(execution_id=self.run_id, actor=actor)

        def beginning(state: ExecutionState) -> list[Event]:
            when: dict[str, Any] = {"now": self._services.clock.now(), "new_id": self._services.new_id}
            created = advance(self._plan.graph, state, create, **when)
            return created + advance(self._plan.graph, fold(created, state), start, **when)

        self._begun = await self._execution.decide(beginning)

    async def go_on(self) -> ExecutionState:
        """Take the run to its end, from wherever its log stands; waits as long as the run does."""
        scope, keeper, events = await self._replay()
        deadlines = Deadlines(self._services.clock, self._expire)
        deadlines.listen(events, self.state)
        self._execution.subscribe(deadlines.listen)
        try:
            while not self.state.is_terminal:
                self._changed.clear()
                if await self._drive(scope, keeper) is Rest.PARKED:
                    await self._changed.wait()
        finally:
            deadlines.close()
        return self.state

    async def cancel(self, reason: str | None, actor: Actor) -> bool:
        """Ask for the run to be cancelled; False if it has ended already."""
        await self._execution.do(CancelExecution(execution_id=self.run_id, actor=actor, reason=reason))
        return self.state.is_cancel_requested

    async def resume(self, node_id: str, value: Any, actor: Actor, *, key: str | None = None) -> None:  # noqa: ANN401
        """Let a waiting node go on with ``value``, which must be JSON; CommandRejected if it does not wait."""
        brought = parse_object({"input": value})
        await self._execution.do(
            ResumeNode(execution_id=self.run_id, actor=actor, node_id=node_id, resume_key=key, extra=brought)
        )

    async def _replay(self) -> tuple[RunScope, ResultKeeper, Sequence[Event]]:
        """Tell the keeper of results what has happened so far; a log this process did not write is read for that."""
        events = self._begun or await self._execution.load()
        given = self.state.input or {}
        scope = RunScope(self.run_id, self._model.name, given.get("params", {}), self._services.artifacts / self.run_id)
        self._results = scope.results
        keeper = ResultKeeper(scope)
        if self.state.started_at is None and not self.state.is_cancel_requested:
            await self._execution.do(StartExecution(execution_id=self.run_id, actor=_SCHEDULER))
        keeper.listen(events, self.state)
        self._execution.subscribe(keeper.listen)
        return scope, keeper, events

    async def _drive(self, scope: RunScope, keeper: ResultKeeper) -> Rest:
        driver = Driver(self._execution, grace_sec=self._services.grace_sec)
        work = Work(
            driver,
            self._plan.steps,
            self._functions,
            scope,
            keeper,
            workshop=self._services.workshop,
            run_block=run_block,
            worker_id=self._services.worker_id,
            chance=self._services.chance,
        )
        return await driver.drive(work)

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

"""Recomputes lost results for a task or a block that needs one, if the task that made it may be called again.

Such a task is called again (``recompute=True``) as an attempt in the log, just before what needs its result; see
``core.recompute``. A result of any other task stays lost, and what needs it fails as ``RESULT_LOST``. If the function
of such a task is missing in this process, the run is held, as for any other missing code.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from pyoco_server.app.ports import TaskExecutor
from pyoco_server.app.runtime.attempt import Failed, Outcome, Stopped, Succeeded, TaskCall, pause
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.node_commands import NodeCommands, OutcomeRecorder
from pyoco_server.app.runtime.results import ResultKeeper
from pyoco_server.app.runtime.start_fence import FencedExecutor, StartFence
from pyoco_server.core import Commit, Event, ExecutionState, fold, recompute, recompute_failed, recomputed
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import TaskSpec, TaskStep
from pyoco_server.values.errors import ResultLostError

T = TypeVar("T")
Decide = Callable[[ExecutionState], list[Event]]


class CodeLackedError(PyocoServerError):
    """A lost result can be computed again, but the function of its task is missing in this process."""

    def __init__(self, task: str) -> None:
        super().__init__(f"the result of task '{task}' is lost, and its function is missing here")
        self.task = task


class WalkInside(Protocol):
    """Makes the steps known that are inside the finished block around a node."""

    async def __call__(self, node_id: str, *, is_started: bool) -> None:
        """``is_started``: has the node that needs them started, so that values may be loaded?"""
        ...


class TaskCaller(Protocol):
    """Makes calls of tasks; what ``NodeExecutor`` provides."""

    def begin(self, node_id: str, task: TaskSpec, executor: TaskExecutor) -> TaskCall:
        """Make a call that can be asked to stop."""
        ...

    def prepared(self, node_id: str, task: TaskSpec, executor: TaskExecutor) -> TaskCall:
        """Make a call only to see what it would be given."""
        ...

    def finished(self, node_id: str) -> None:
        """Forget the call, which has ended."""
        ...


class Recomputer:
    """Computes lost results again, one at a time."""

    def __init__(
        self,
        caller: TaskCaller,
        execution: Execution,
        commands: NodeCommands,
        keeper: ResultKeeper,
        recorder: OutcomeRecorder,
        *,
        executor: TaskExecutor,
        walk_inside: WalkInside,
        fence: StartFence | None,
        chance: random.Random,
    ) -> None:
        self._caller = caller
        self._execution = execution
        self._commands = commands
        self._keeper = keeper
        self._recorder = recorder
        self._executor = executor
        self._walk_inside = walk_inside
        self._fence = fence
        self._chance = chance
        self._lock = asyncio.Lock()
        self._under_way: dict[str, list[TaskCall]] = {}
        self._pauses: dict[str, asyncio.Task[None]] = {}
        """By the node that needs a result: the pause before the next attempt at it."""

    def ask_to_stop(self, needing: str) -> bool:
        """Stop what is computed for a node; False if nothing is."""
        under_way = self._under_way.get(needing, [])
        for attempt in under_way:
            attempt.ask_to_stop()
        pausing = self._pauses.get(needing)
        if pausing is not None:
            pausing.cancel()
        return bool(under_way) or pausing is not None

    async def look(self, needing: str, look: Callable[[], Awaitable[T]]) -> T:
        """Return what ``look`` does; results it misses are computed first.

        ResultLostError for one that may not be computed, CodeLackedError for one whose function is missing here.
        """
        tried: set[str] = set()
        while True:
            try:
                return await look()
            except ResultLostError as lost:
                node_id = lost.node_id
                if node_id is None or node_id in tried:
                    raise
                self._keeper.lose(lost)
            tried.add(node_id)
            async with self._lock:
                await self._make_available(needing, (), node_id)

    async def run(self, needing: str, attempt: TaskCall) -> Outcome:
        """Run an attempt; lost results among its arguments are computed first, the others it meets by itself.

        CodeLackedError for one whose function is missing here.
        """

        async def provide() -> None:
            async with self._lock:
                await self._provide(needing, (), attempt)

        return await self._outcome(attempt, provide)

    async def _outcome(self, attempt: TaskCall, provide: Callable[[], Awaitable[None]]) -> Outcome:
        """Run an attempt after ``provide``; once more for each argument that turns out to be lost when it is loaded."""
        while True:
            await provide()
            outcome = await attempt.run()
            unloaded = outcome.unloaded if isinstance(outcome, Failed) else None
            if unloaded is None or not self._keeper.lose(unloaded):
                return outcome

    async def lacks(self, needing: str, attempt: TaskCall) -> str | None:
        """Return the name of the code that ``run`` would need and this process does not have; loads no value."""
        async with self._lock:
            return await self._lacks(needing, (), attempt)

    async def _lacks(self, needing: str, chain: tuple[str, ...], attempt: TaskCall) -> str | None:
        for lost in self._needed(needing, chain, attempt):
            task = await self._repeatable(lost, chain, is_started=False)
            if task is None:
                continue
            inner = (*chain, lost)
            missing = self._commands.lacks(lost)
            if missing is None:
                missing = await self._lacks(needing, inner, self._caller.prepared(lost, task, self._executor))
            if missing is not None:
                return missing
        return None

    def _needed(self, needing: str, chain: tuple[str, ...], attempt: TaskCall) -> list[str]:
        """Nodes with lost results that the attempt's arguments name; all, if it takes ``ctx`` and so may read any."""
        named = attempt.lost_arguments()
        if attempt.takes_context:
            named += self._keeper.lost_before(chain[-1] if chain else needing)
        return [*dict.fromkeys(named)]

    async def _provide(self, needing: str, chain: tuple[str, ...], attempt: TaskCall) -> None:
        tried: set[str] = set()
        while left := [node_id for node_id in self._needed(needing, chain, attempt) if node_id not in tried]:
            for node_id in left:
                tried.add(node_id)
                await self._make_available(needing, chain, node_id)

    async def _repeatable(self, lost: str, chain: tuple[str, ...], *, is_started: bool = True) -> TaskSpec | None:
        """Return the task of a result that is lost and may be computed again."""
        if lost not in self._keeper.deferred or lost in chain:
            return None
        if lost not in self._commands.steps:
            await self._walk_inside(lost, is_started=is_started)
        step = self._commands.steps.get(lost)
        return step.task if isinstance(step, TaskStep) and step.task.recompute else None

    async def _make_available(self, needing: str, chain: tuple[str, ...], lost: str) -> None:
        """Compute a result unless it is here by now, as often as the task's retries allow; or leave it lost."""
        task = await self._repeatable(lost, chain)
        if task is None:
            return
        missing = self._commands.lacks(lost)
        if missing is not None:
            raise CodeLackedError(missing)
        for failures in range(1, task.retries + 2):
            outcome = await self._attempt(needing, (*chain, lost), lost, task)
            if not isinstance(outcome, Failed) or failures > task.retries:
                return
            await self._pause(needing, pause(task.backoff, failures, self._chance))

    async def _pause(self, needing: str, seconds: float) -> None:
        """Wait, unless the node that needs the result is asked to stop."""
        self._pauses[needing] = pausing = asyncio.create_task(self._execution.clock.sleep(seconds), name="pause")
        try:
            await asyncio.wait((pausing,))
        finally:
            pausing.cancel()
            del self._pauses[needing]

    async def _attempt(self, needing: str, chain: tuple[str, ...], node_id: str, task: TaskSpec) -> Outcome | None:
        """Call the task once more and record how that ended; None if the run is to do nothing more."""
        number = await self._begun(node_id)
        if number is None:
            return None
        fenced = (
            FencedExecutor(self._executor, self._fence, node_id, needing=needing) if self._fence is not None else None
        )
        attempt = self._caller.begin(node_id, task, fenced or self._executor)
        under_way = self._under_way.setdefault(needing, [])
        under_way.append(attempt)
        try:
            outcome = await self._outcome(attempt, lambda: self._provide(needing, chain, attempt))
        finally:
            under_way.remove(attempt)
            self._caller.finished(node_id)
        if fenced is not None and fenced.problem is not None:
            raise fenced.problem
        match outcome:
            case Succeeded(value):
                await self._succeeded(node_id, number, value)
            case Failed(error):
                given: dict[str, Any] = {"attempt": number, "error": error, **self._who()}
                await self._decided(lambda state: recompute_failed(state, node_id, **given))
                self._keeper.explain_loss(node_id, f"computing it again failed: {error.get('message')}")
            case Stopped():  # last of a closed set: the log has the attempt, and its result is not needed
                pass
        return outcome

    async def _begun(self, node_id: str) -> int | None:
        """Begin the attempt and return its number; None if the run is to do nothing more."""
        node = self._execution.state.nodes[node_id]
        is_open = node.attempt > max(self._keeper.newest_ends.get(node_id, 0), node.failed_attempt)
        is_of_another = is_open and node.worker_id != self._commands.worker_mark
        given = {"worker_id": self._commands.worker_mark, **self._who()}
        if not await self._decided(lambda state: recompute(state, node_id, **given)):
            return None
        if is_of_another and self._fence is not None:
            await self._fence.until_others_are_late()
        return self._execution.state.nodes[node_id].attempt

    async def _succeeded(self, node_id: str, number: int, value: Any) -> None:  # noqa: ANN401 any value
        async def record(output: JsonObject) -> list[Event]:
            given: dict[str, Any] = {"attempt": number, "output": output, **self._who()}
            return await self._decided(lambda state: recomputed(state, node_id, **given))

        await self._recorder.store(self._keeper.owner(node_id), value, record)

    def _who(self) -> dict[str, Any]:
        execution = self._execution
        return {"actor": self._commands.actor, "now": execution.clock.now(), "new_id": execution.new_id}

    async def _decided(self, decide: Decide) -> list[Event]:
        def decision(state: ExecutionState) -> Commit:
            events = decide(state)
            return Commit(events, fold(events, state) if events else state)

        return await self._execution.decide(decision)

"""Executes attempts at the nodes of one run: calls tasks, puts waits to wait, runs blocks, and reports how each ended.

The log has the attempt's NODE_STARTED before :meth:`NodeExecutor.execute` is called; which attempt starts when is
decided in ``driver.py``. What is inside a block is run in ``control_flow.py``, lost results are computed again in
``recompute.py``. All three report through :class:`.OutcomeRecorder`.
"""

import contextlib
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from pyoco_server.app.ports import TaskExecutor, UnavailableError
from pyoco_server.app.runtime.argument_binding import shape_of
from pyoco_server.app.runtime.attempt import (
    Failed,
    Function,
    Outcome,
    Stopped,
    Succeeded,
    TaskCall,
    describe,
    internal_error,
)
from pyoco_server.app.runtime.context import RunScope
from pyoco_server.app.runtime.control_flow import Blocks, ChildNodes
from pyoco_server.app.runtime.crashes import EVALUATING, HANDED_BACK
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.node_commands import NodeCommands, OutcomeRecorder
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.progress import ProgressReporter
from pyoco_server.app.runtime.recompute import CodeLackedError, Recomputer
from pyoco_server.app.runtime.results import ResultKeeper
from pyoco_server.app.runtime.start_fence import FencedExecutor, StartFence, TooLateError
from pyoco_server.core import CommandRejected, Commit, ExecutionState, NodeStatus
from pyoco_server.core.commands import FailNode, ReportNodeProgress
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.limits import NO_LIMITS, RunLimits, RunTooLargeError
from pyoco_server.flows.model import Isolation, TaskSpec, TaskStep, WaitSpec
from pyoco_server.flows.operations import Cost, ElsewhereError
from pyoco_server.flows.prompts import has_templates, rendered
from pyoco_server.logs import log_error
from pyoco_server.values.codec import received
from pyoco_server.values.errors import ResultLostError, lost_behind

_log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeExecutor:
    """Executes attempts that have started in the log; its state is the calls in progress.

    Contract: :meth:`execute` returns when the attempt has ended, waits, or belongs to another process by now, and its
    outcome is in the log unless a cancel or a newer attempt was first. An error of this package fails the node, not the
    process. Only ``UnavailableError`` is raised: the log does not answer, and the run must be driven again later.
    """

    def __init__(  # noqa: PLR0913 the parts of one run
        self,
        execution: Execution,
        commands: NodeCommands,
        functions: Mapping[str, Function],
        scope: RunScope,
        keeper: ResultKeeper,
        *,
        executor: TaskExecutor,
        outputs: Outputs,
        chance: random.Random,
        fence: StartFence | None = None,
        isolation: Isolation | None = None,
        limits: RunLimits = NO_LIMITS,
        at_boundary: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``fence`` is needed where other processes may take over the run.

        ``isolation``: where plain functions run whose task does not say; ``at_boundary`` is awaited when a task ended.
        """
        self._execution = execution
        self._commands = commands
        self._functions = functions
        self._scope = scope
        self._keeper = keeper
        self._executor = executor
        self._outputs = outputs
        self._chance = chance
        self._fence = fence
        self._isolation = isolation
        self._at_boundary = at_boundary
        self._recorder = OutcomeRecorder(execution, commands, keeper, outputs, executor)
        self._limits = limits
        self._blocks = Blocks(execution, commands, self._recorder, scope, keeper, limits)
        self._calls: dict[str, TaskCall] = {}
        self._progress = ProgressReporter()
        self._recomputer: Recomputer | None = None

    @property
    def must_prepare(self) -> bool:
        """Are there stored results to load?"""
        return bool(self._keeper.missing)

    async def prepare(self) -> None:
        """Load the results that are stored beside the log."""
        await self._keeper.fetch(self._outputs)

    async def missing_code(self, node_id: str, children: ChildNodes) -> str | None:
        """Return the task that starting the node would have to call for a lost result, and whose code is missing."""
        step = self._commands.steps[node_id]
        if not (self._keeper.deferred and isinstance(step, TaskStep) and step.task.wait is None):
            return None
        return await self._lost_results(children).lacks(node_id, self.prepared(node_id, step.task, self._executor))

    async def execute(self, node_id: str, children: ChildNodes, *, attempt: int) -> None:
        """Execute the attempt that has started; ``children`` starts the nodes inside it if it is a block.

        Every report names the attempt, so that the log rejects it if another worker has started a higher one.
        """
        try:
            await self._execute(node_id, children, attempt)
        except UnavailableError:
            raise
        except TooLateError:  # another worker has the node now
            return
        except CodeLackedError as lacked:
            await self._leave_for_others(node_id, lacked.task, attempt)
        except Exception as error:  # noqa: BLE001 reported as our error, never as the task's; the run continues to its end
            log_error(
                _log,
                "ERR-PYOCO-0007",
                action="node_crashed",
                exc=error,
                reason=f"pyoco-server itself failed at node '{node_id}'",
                run_id=self._execution.execution_id,
            )
            await self._recorder.fail(node_id, internal_error(error), attempt=attempt)

    async def _execute(self, node_id: str, children: ChildNodes, attempt: int) -> None:
        match self._commands.steps[node_id]:
            case TaskStep(task) if task.wait is not None:
                await self._wait(node_id, task.wait, children, attempt)
            case TaskStep(task):
                await self._call(node_id, task, children)
            case block:
                evaluate = functools.partial(self._evaluate, children)
                await self._blocks.execute(node_id, block, children, evaluate, attempt=attempt)

    async def _leave_for_others(self, node_id: str, task: str, attempt: int) -> None:
        """Leave a node at work as it is: it needs a result of ``task``, whose code is missing here.

        The run is then handed over or held. That this worker leaves the node does not count as its death.
        """
        self._commands.needs_again(node_id, task)
        if self._commands.is_task(node_id):
            await self._recorder.report(ReportNodeProgress, node_id, attempt=attempt, extra={HANDED_BACK: True})

    # --- Waits -------------------------------------------------------------------------------------------------------

    async def _wait(self, node_id: str, wait: WaitSpec, children: ChildNodes, attempt: int) -> None:
        """Put a node to wait, unless the commit that started it did: it may have been resumed since."""
        try:
            prompt = await self._evaluate(children, node_id, lambda cost: self._rendered(node_id, wait, cost))
        except (FlowError, ResultLostError) as error:
            await self._recorder.fail(node_id, describe(error), attempt=attempt)
            return
        waiting = self._commands.waiting(node_id, wait, prompt)

        def decision(state: ExecutionState) -> Commit:
            node = state.nodes[node_id]
            if node.status is NodeStatus.WAITING or node.resumption is not None:
                return Commit([], state)
            return self._execution.step(state, waiting, observed=True)

        with contextlib.suppress(CommandRejected):  # it has ended otherwise meanwhile
            await self._execution.decide(decision)
        given = self._execution.state.nodes[node_id].resumption
        if given is not None:
            await self.end_wait(node_id, given, attempt=attempt)

    def _rendered(self, node_id: str, wait: WaitSpec, cost: Cost) -> Mapping[str, object]:
        if self._execution.state.nodes[node_id].status is NodeStatus.WAITING or not has_templates(wait.prompt):
            return wait.prompt
        context = self._scope.context(self._blocks.place(node_id))
        try:
            return rendered(wait.prompt, ctx=context.expression_data(), env=context.env_data(), cost=cost)
        except FlowError as error:
            raise lost_behind(error) or error from error

    async def end_wait(self, node_id: str, given: JsonObject, *, attempt: int) -> None:
        """End a wait that was resumed: the input it was given is its result."""
        try:
            value = received("input", given)
        except InvalidInputError as error:  # the gateway refuses it; another program wrote the event
            await self._recorder.fail(node_id, describe(error), attempt=attempt)
            return
        await self._recorder.succeed(node_id, value, attempt=attempt)

    # --- Stopping ----------------------------------------------------------------------------------------------------

    def ask_to_stop(self, node_id: str) -> bool:
        """Ask the call at work on the node to stop; False if there is none in this process."""
        call = self._calls.get(node_id)
        if call is not None:
            call.ask_to_stop()
        is_recomputing = self._recomputer is not None and self._recomputer.ask_to_stop(node_id)
        return call is not None or is_recomputing

    def abandon_calls(self) -> None:
        """Abandon every call in progress."""
        for call in self._calls.values():
            call.make_stop()

    async def confirm_stopped(self, node_id: str) -> None:
        """Record that nothing is at work on the node."""
        await self._recorder.confirm_stopped(node_id)

    def close(self) -> None:
        """Break reference cycles, so that nothing is left for the garbage collector."""
        self._recomputer = None

    # --- Tasks -------------------------------------------------------------------------------------------------------

    async def _call(self, node_id: str, task: TaskSpec, children: ChildNodes) -> None:
        fenced = FencedExecutor(self._executor, self._fence, node_id) if self._fence is not None else None
        number = fenced.attempt if fenced is not None else self._execution.state.nodes[node_id].attempt
        call = self.begin(node_id, task, fenced or self._executor)
        try:
            is_deferring = bool(self._keeper.deferred)
            outcome = await (self._lost_results(children).run(node_id, call) if is_deferring else call.run())
        finally:
            self.finished(node_id)
        if fenced is not None and fenced.problem is not None:
            if isinstance(fenced.problem, TooLateError):  # the worker that has the attempt now reports it
                return
            raise fenced.problem
        await self._progress.drained(node_id)
        if self._at_boundary is not None:
            await self._at_boundary()
        await self._report(node_id, number, outcome)

    async def _report(self, node_id: str, attempt: int, outcome: Outcome) -> None:
        match outcome:
            case Succeeded(value):
                await self._recorder.succeed(node_id, value, attempt=attempt)
            case Failed(error, is_final):
                try:
                    self._limits.check_events(self._execution.state.version)
                except RunTooLargeError as too_large:  # no further attempt
                    message = f"{too_large}; the last attempt: {error['code']}: {error['message']}"
                    error, is_final = {**describe(too_large), "message": message}, True
                await self._recorder.report(FailNode, node_id, attempt=attempt, error=error, retryable=not is_final)
            case Stopped():  # last of a closed set
                await self._recorder.confirm_stopped(node_id)

    async def _report_progress(self, node_id: str, percent: float | None, message: str | None) -> None:
        state = self._execution.state
        if state.version >= self._limits.events:
            return
        attempt = state.nodes[node_id].attempt
        await self._recorder.report(ReportNodeProgress, node_id, attempt=attempt, progress=percent, message=message)

    # --- For recomputing (see recompute.TaskCaller) ------------------------------------------------------------------

    def begin(self, node_id: str, task: TaskSpec, executor: TaskExecutor) -> TaskCall:
        """Make a call that can be asked to stop."""
        self._calls[node_id] = call = self.prepared(node_id, task, executor)
        return call

    def prepared(self, node_id: str, task: TaskSpec, executor: TaskExecutor) -> TaskCall:
        """Make a call, to run it or only to see what it would be given."""
        context = self._scope.context(self._blocks.place(node_id))
        context.report_to(self._progress.reporter(node_id, self._report_progress))
        function = self._functions[task.function or task.name]
        if self._isolation is not None and task.isolation is Isolation.AUTO and not shape_of(function).is_async:
            task = msgspec.structs.replace(task, isolation=self._isolation)
        return TaskCall(task, function, context, executor, self._recorder.aside)

    def finished(self, node_id: str) -> None:
        """Forget the call, which has ended."""
        del self._calls[node_id]

    async def _evaluate(self, children: ChildNodes, node_id: str, look: Callable[[Cost], T]) -> T:
        """Return what ``look`` does; lost results that it reads are computed first if they may be.

        What is expensive, or needs code of users, is done in a thread. The log then says so before, so that a crash
        counts as one of the node. TooLateError if the log does not accept that.
        """

        async def here() -> T:
            return look(Cost.on_loop())

        async def in_thread() -> T:
            return await self._recorder.aside(lambda: look(Cost()))

        def looked(where: Callable[[], Awaitable[T]]) -> Awaitable[T]:
            return self._lost_results(children).look(node_id, where) if self._keeper.deferred else where()

        try:
            return await looked(here)
        except ElsewhereError:
            attempt = self._execution.state.nodes[node_id].attempt
        await self._note_evaluating(node_id, attempt, is_begun=True)
        found = await looked(in_thread)
        await self._note_evaluating(node_id, attempt, is_begun=False)
        return found

    async def _walk_inside(self, children: ChildNodes, node_id: str, *, is_started: bool) -> None:
        """Make the steps inside the finished block around a node known; ``is_started``: is there a node that needs it?

        Then that node counts a crash, should a decision of the block be a value whose code runs when it is loaded.
        """

        async def evaluate(_: str, look: Callable[[Cost], T]) -> T:
            try:
                return look(Cost.on_loop())
            except ElsewhereError:
                if not is_started:
                    raise
            return await self._recorder.aside(lambda: look(Cost()))

        await self._blocks.walk_inside(node_id, children=children, evaluate=evaluate)

    async def _note_evaluating(self, node_id: str, attempt: int, *, is_begun: bool) -> None:
        extra = {EVALUATING: is_begun}
        if not await self._recorder.report(ReportNodeProgress, node_id, attempt=attempt, extra=extra):
            raise TooLateError(f"attempt {attempt} of '{node_id}' is over")

    def _lost_results(self, children: ChildNodes) -> Recomputer:
        """Made only when it is needed: it refers to this object, which refers to it."""
        if self._recomputer is None:
            self._recomputer = Recomputer(
                self,
                self._execution,
                self._commands,
                self._keeper,
                self._recorder,
                executor=self._executor,
                walk_inside=functools.partial(self._walk_inside, children),
                fence=self._fence,
                chance=self._chance,
            )
        return self._recomputer

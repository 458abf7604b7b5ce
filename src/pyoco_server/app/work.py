"""What is done about the nodes of a flow: tasks are called, waits wait, blocks run what is inside them."""

import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pyoco_server.app.attempts import Attempt, Failed, Function, Outcome, Stopped, Succeeded, describe, internal_error
from pyoco_server.app.backoff import pause
from pyoco_server.app.calling import shape_of
from pyoco_server.app.context import Place, RunScope
from pyoco_server.app.crashes import HANDED_BACK, CrashHistory
from pyoco_server.app.driver import Driver
from pyoco_server.app.fencing import Fence, Fencing, TooLateError
from pyoco_server.app.outputs import VALUE, Outputs
from pyoco_server.app.ports import UnavailableError, Workshop
from pyoco_server.app.progress import ProgressDesk
from pyoco_server.app.recomputing import CodeLackedError, Recomputer
from pyoco_server.app.results import ResultKeeper
from pyoco_server.app.rounds import (
    ROUNDS,
    BlockFailedError,
    ChildFailedError,
    Rounds,
    SiblingFailedError,
    described_in_round,
    error_of_block,
    is_in_loop,
)
from pyoco_server.app.starting import Starter
from pyoco_server.core import (
    CommandRejected,
    Commit,
    Event,
    ExecutionState,
    NodeNotStoppableError,
    NodeStatus,
    add_node,
    cancel_node,
    confirm_stopped,
    fold,
)
from pyoco_server.core.commands import FailNode, NodeCommand, ReportNodeProgress, StartNode, SucceedNode
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.model import Isolation, Step, Steps, TaskSpec, TaskStep, WaitSpec
from pyoco_server.flows.plan import block_type, task_node
from pyoco_server.flows.prompts import has_templates, rendered
from pyoco_server.logs import log_error
from pyoco_server.values.codec import received
from pyoco_server.values.errors import ResultLostError, lost_behind
from pyoco_server.values.lazy import value_of

_log = logging.getLogger(__name__)

T = TypeVar("T")
RunBlock = Callable[["Work", str, Step, Place], Coroutine[Any, Any, None]]


class Work:
    """The work of one run, as its driver has it done."""

    def __init__(  # noqa: PLR0913 everything that work is made of
        self,
        driver: Driver,
        starter: Starter,
        functions: Mapping[str, Function],
        scope: RunScope,
        keeper: ResultKeeper,
        *,
        workshop: Workshop,
        outputs: Outputs,
        run_block: RunBlock,
        chance: random.Random,
        crashes: CrashHistory,
        fencing: Fencing | None = None,
        isolation: Isolation | None = None,
        at_boundary: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``fencing`` is needed where others may take over the run.

        ``isolation``: where plain functions run whose task does not say; ``at_boundary`` is awaited when a task ended.
        """
        self.driver = driver
        self.scope = scope
        self.worker_id = starter.worker_id
        self.actor = starter.actor
        self._starter = starter
        self._steps = starter.steps
        self._execution = driver.execution
        self._functions = functions
        self._keeper = keeper
        self._workshop = workshop
        self._outputs = outputs
        self._run_block = run_block
        self._chance = chance
        self._crashes = crashes
        self._fencing = fencing
        self._isolation = isolation
        self._at_boundary = at_boundary
        self._places: dict[str, Place] = {}
        self._attempts: dict[str, Attempt] = {}
        self._given_up: set[str] = set()
        self._rounds: dict[str, Rounds] = {}
        self._progress = ProgressDesk()
        self._walked: str | None = None
        self._recomputer: Recomputer | None = None

    # --- What the driver asks for ------------------------------------------------------------------------------------

    def knows(self, node_id: str) -> bool:
        """Is the node one of the flow's?"""
        return self._starter.knows(node_id)

    def lacks(self, node_id: str) -> str | None:
        """Return the name of the code that starting the node needs and this process does not have."""
        return self._starter.lacks(node_id)

    @property
    def must_prepare(self) -> bool:
        """Are there values to fetch?"""
        return bool(self._keeper.missing)

    async def prepare(self) -> None:
        """Fetch what is stored beside the log."""
        await self._keeper.fetch(self._outputs)

    async def run(self, node_id: str) -> None:
        """Begin the node's next attempt and see it through."""
        node, step = self._execution.state.nodes[node_id], self._steps[node_id]
        inside_already = node.is_at_work and node.worker_id == self.worker_id and not isinstance(step, TaskStep)
        if not inside_already:  # a block we had put aside is gone on with; anything else is a new attempt
            if await self._lacks_for_lost(node_id, step) or not await self._start(node_id, step, node.attempt + 1):
                return
            is_taken = node.is_at_work and node.worker_id != self.worker_id and isinstance(step, TaskStep)
            if is_taken and self._fencing is not None:
                await self._fencing.until_others_are_late()
        await self.perform(node_id)

    async def _lacks_for_lost(self, node_id: str, step: Step) -> bool:
        """Whether the task cannot be started since a lost result is to be computed by code that is missing here."""
        if not (self._keeper.deferred and isinstance(step, TaskStep) and step.task.wait is None):
            return False
        attempt = self.prepared(node_id, step.task, self._workshop)
        missing = await self._lost_results().lacks(node_id, attempt)
        if missing is not None:
            self._starter.needs_again(node_id, missing)
        return missing is not None

    async def _start(self, node_id: str, step: Step, attempt: int) -> bool:
        """Start the attempt; False if it was not: another process was first, or the task is not called again."""

        def decision(state: ExecutionState) -> Commit:
            node, extra, me = state.nodes[node_id], {}, self.worker_id
            if isinstance(step, TaskStep) and step.task.wait is None and node.is_at_work:
                error = self._crashes.verdict(node, step.task, me)
                if error is not None:
                    fields: dict[str, Any] = {"attempt": attempt - 1, "error": error, "retryable": False}
                    failing = self._starter.command(FailNode, node_id, **fields)
                    return self._execution.step(state, failing, observed=True)
                extra = self._crashes.news(node, me)
            start = self._starter.command(StartNode, node_id, attempt=attempt, worker_id=me, extra=extra)
            return self._execution.step(state, start, observed=True)

        try:
            events = await self._execution.decide(decision)
        except CommandRejected:
            return False
        return any(type(event.payload) is NodeStarted and event.payload.node_id == node_id for event in events)

    async def perform(self, node_id: str) -> None:
        """See the attempt through that has begun.

        An error of this package fails the node, not the process, and is reported as what it is: never as the task's.
        """
        try:
            await self._perform(node_id)
        except UnavailableError:
            raise
        except TooLateError:  # another worker has the node now
            return
        except CodeLackedError as lacked:
            await self._leave_for_others(node_id, lacked.task)
        except Exception as error:  # noqa: BLE001 told in the log, and the run goes on to its end
            log_error(
                _log,
                "ERR-PYOCO-0007",
                action="node_crashed",
                exc=error,
                reason=f"pyoco-server itself failed at node '{node_id}'",
                run_id=self._execution.execution_id,
            )
            await self._tell(FailNode, node_id, error=internal_error(error), retryable=False)

    async def _perform(self, node_id: str) -> None:
        match self._steps[node_id]:
            case TaskStep(task) if task.wait is not None:
                await self._wait(node_id, task.wait)
            case TaskStep(task):
                await self._attempt(node_id, task)
            case block:
                await self._run_inside(node_id, block)

    async def _wait(self, node_id: str, wait: WaitSpec) -> None:
        """Put a node to wait, unless the commit that began it has: somebody may have resumed it since."""
        try:
            prompt = await self._look(node_id, lambda: self._rendered(node_id, wait))
        except (FlowError, ResultLostError) as error:
            await self._tell(FailNode, node_id, error=describe(error), retryable=False)
            return
        waiting = self._starter.waiting(node_id, wait, prompt)

        def decision(state: ExecutionState) -> Commit:
            node = state.nodes[node_id]
            if node.status is NodeStatus.WAITING or node.resumption is not None:
                return Commit([], state)
            return self._execution.step(state, waiting, observed=True)

        with contextlib.suppress(CommandRejected):  # it has ended otherwise meanwhile
            await self._execution.decide(decision)
        given = self._execution.state.nodes[node_id].resumption
        if given is not None:
            await self.wake(node_id, given)

    def _rendered(self, node_id: str, wait: WaitSpec) -> Mapping[str, Any]:
        if self._execution.state.nodes[node_id].status is NodeStatus.WAITING or not has_templates(wait.prompt):
            return wait.prompt
        context = self.scope.context(self._places.get(node_id, Place()))
        try:
            return rendered(wait.prompt, ctx=context.expression_data(), env=context.env_data())
        except FlowError as error:
            raise lost_behind(error) or error from error

    async def retry(self, node_id: str) -> None:
        """Begin another attempt after the pause the task's policy asks for."""
        step = self._steps[node_id]
        if isinstance(step, TaskStep):
            failures = self._execution.state.nodes[node_id].failures
            await self._execution.clock.sleep(pause(step.task.backoff, failures, self._chance))
        await self.run(node_id)

    async def wake(self, node_id: str, given: JsonObject) -> None:
        """A wait is over: what it was resumed with is its result."""
        try:
            value = received("input", given)
        except InvalidInputError as error:  # the gateway refuses it; somebody else wrote the event
            await self._tell(FailNode, node_id, error=describe(error), retryable=False)
            return
        owner = self._keeper.owner(node_id)
        output = await self._outputs.written(owner, self.new_output_name, value)
        self._keeper.hand_over(owner, value)
        if not await self._tell(SucceedNode, node_id, output=output):
            self._keeper.take_back(owner)
            await self._outputs.forget(output)

    def ask_to_stop(self, node_id: str) -> bool:
        """Ask whoever is at work on the node to stop."""
        attempt = self._attempts.get(node_id)
        if attempt is not None:
            attempt.ask_to_stop()
        is_recomputing = self._recomputer is not None and self._recomputer.ask_to_stop(node_id)
        return attempt is not None or is_recomputing

    def make_stop(self) -> None:
        """Give up on everything at work."""
        for attempt in self._attempts.values():
            attempt.make_stop()

    async def confirm_stopped(self, node_id: str) -> None:
        """Record that nobody is at work on the node."""

        def decision(state: ExecutionState) -> Commit:
            return _commit(
                confirm_stopped(self._execution.graph, state, node_id, actor=self.actor, **self._when()), state
            )

        with contextlib.suppress(NodeNotStoppableError):  # it has ended otherwise meanwhile: just as well
            await self._execution.decide(decision)

    # --- For blocks --------------------------------------------------------------------------------------------------

    async def child(self, node_id: str, step: Step, place: Place) -> None:
        """Run a node inside a block, or take note of how it ended before; ChildFailedError unless it succeeded."""
        self._steps[node_id] = step
        self._places[node_id] = place
        if node_id not in self._execution.state.nodes:
            if self._is_given_up(node_id):
                raise SiblingFailedError(f"'{node_id}' was not begun: one beside it has failed")
            await self._execution.decide(lambda state: self._added(state, node_id, step))
            if self._is_given_up(node_id):  # one beside it failed while it was being added
                await self._cancel_wait(node_id)
        is_on_the_way = self._walked is not None and self._walked.startswith((f"{node_id}[", f"{node_id}/"))
        if is_on_the_way and self._execution.state.nodes[node_id].status is NodeStatus.SUCCEEDED:
            await self._run_block(self, node_id, step, place)
        node = await self.driver.end_of(node_id)
        if node.status != "SUCCEEDED":
            raise ChildFailedError(node, is_isolated=node_id in self._keeper.isolated)

    def count_rounds(self, node_id: str, body: Steps, total: int | None = None) -> Rounds:
        """Begin to count the rounds of a loop; the counts become part of how it ends."""
        self._rounds[node_id] = rounds = Rounds(node_id, body, total)
        return rounds

    def first_isolated(self, failures: Sequence[ChildFailedError]) -> ChildFailedError:
        """Of several failures that end the same round, the one that the log has first."""
        return min(failures, key=lambda failure: [*self._keeper.isolated].index(failure.node.node_id))

    async def decide_once(self, node_id: str, key: str, evaluate: Callable[[], Any]) -> Any:  # noqa: ANN401 any value
        """What a block decided about ``key``: as the log has it, or decided now and put on record.

        Results change while a block runs, and a process that runs its code again must come to the same decisions. So
        a decision that cannot be stored is on record, too, as lost: to read it in another process is ResultLostError.
        """
        if (node_id, key) in self._keeper.decisions:
            return value_of(self._keeper.decisions[node_id, key])
        value = await self._look(node_id, evaluate)
        owner = self._keeper.owner(node_id, key)
        output = await self._outputs.written(owner, self.new_output_name, value)
        self._keeper.hand_over(owner, value)
        attempt, decision = self._execution.state.nodes[node_id].attempt, {"key": key, **output}
        if not await self._tell(ReportNodeProgress, node_id, attempt=attempt, metrics={"decision": decision}):
            self._keeper.take_back(owner)
            await self._outputs.forget(output)
        return value

    async def together(self, node_id: str, bodies: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run parts of a block side by side; when one fails, nothing more is begun and nobody is waited for."""

        async def give_up() -> None:
            inside = f"{node_id}["
            self._given_up.add(inside)
            for node in self._execution.state.live_nodes():
                if node.status is NodeStatus.WAITING and node.node_id.startswith(inside):
                    await self._cancel_wait(node.node_id)

        left = [failed for failed in self._keeper.failed if failed.startswith(f"{node_id}[")]
        if left:  # by whoever was here before: nothing is begun any more
            await give_up()
        try:
            await self.driver.together(bodies, give_up)
        except (ChildFailedError, SiblingFailedError):
            if left:
                raise ChildFailedError(self._execution.state.nodes[left[0]]) from None
            raise

    def _is_given_up(self, node_id: str) -> bool:
        return any(node_id.startswith(block) for block in self._given_up)

    async def _cancel_wait(self, node_id: str) -> None:
        reason = "one beside it has failed"

        def decision(state: ExecutionState) -> Commit:
            if state.is_cancel_requested or state.nodes[node_id].status is not NodeStatus.WAITING:
                return Commit([], state)
            graph, when = self._execution.graph, self._when()
            return _commit(cancel_node(graph, state, node_id, actor=self.actor, reason=reason, **when), state)

        with contextlib.suppress(NodeNotStoppableError):  # somebody has resumed it
            await self._execution.decide(decision)

    def _added(self, state: ExecutionState, node_id: str, step: Step) -> Commit:
        if not isinstance(step, TaskStep):
            return _commit(add_node(state, node_id, block_type(step), **self._when()), state)
        node = task_node(node_id, step.task)
        described = described_in_round(step.task, node.extra) if is_in_loop(node_id) else node.extra
        added = add_node(state, node_id, node.node_type, retries=node.retries, described=described, **self._when())
        return _commit(added, state)

    def _when(self) -> dict[str, Any]:
        return {"now": self._execution.clock.now(), "new_id": self._execution.new_id}

    async def _look(self, node_id: str, look: Callable[[], T]) -> T:
        """Return ``look()``; lost results that it misses are computed first if they may be."""
        return await self._lost_results().look(node_id, look) if self._keeper.deferred else look()

    def _lost_results(self) -> Recomputer:
        """Made only when it is needed: it refers to this work, which refers to it."""
        if self._recomputer is None:
            self._recomputer = Recomputer(
                self,
                self._execution,
                self._keeper,
                self._steps,
                workshop=self._workshop,
                outputs=self._outputs,
                fencing=self._fencing,
                chance=self._chance,
            )
        return self._recomputer

    # --- Nodes -------------------------------------------------------------------------------------------------------

    async def _attempt(self, node_id: str, task: TaskSpec) -> None:
        fence = Fence(self._workshop, self._fencing, node_id) if self._fencing is not None else None
        number = fence.attempt if fence is not None else self._execution.state.nodes[node_id].attempt
        attempt = self.begin(node_id, task, fence or self._workshop)
        try:
            if self._keeper.deferred:
                await self._lost_results().provide(node_id, attempt)
            outcome = await attempt.run()
        finally:
            self.finished(node_id)
        if fence is not None and fence.problem is not None:
            if isinstance(fence.problem, TooLateError):  # whoever has it now tells of it
                return
            raise fence.problem
        await self._progress.drained(node_id)
        if self._at_boundary is not None:
            await self._at_boundary()
        await self._report(node_id, number, outcome)

    def begin(self, node_id: str, task: TaskSpec, workshop: Workshop) -> Attempt:
        """Make an attempt that can be asked to stop."""
        self._attempts[node_id] = attempt = self.prepared(node_id, task, workshop)
        return attempt

    def prepared(self, node_id: str, task: TaskSpec, workshop: Workshop) -> Attempt:
        """Make an attempt to look at, or to run."""
        context = self.scope.context(self._places.get(node_id, Place()))
        context.report_to(self._progress.reporter(node_id, self._report_progress))
        function = self._functions[task.function or task.name]
        if self._isolation is not None and task.isolation is Isolation.AUTO and not shape_of(function).is_async:
            task = msgspec.structs.replace(task, isolation=self._isolation)
        return Attempt(task, function, context, workshop)

    def finished(self, node_id: str) -> None:
        """The attempt has ended."""
        del self._attempts[node_id]

    async def _report(self, node_id: str, attempt: int, outcome: Outcome) -> None:
        match outcome:
            case Succeeded(value):
                owner = self._keeper.owner(node_id)
                output = await self._outputs.written(owner, self.new_output_name, value)
                self._keeper.hand_over(owner, value)
                if not await self._tell(SucceedNode, node_id, attempt=attempt, output=output):
                    self._keeper.take_back(owner)
                    await self._outputs.forget(output)
            case Failed(error, is_final):
                await self._tell(FailNode, node_id, attempt=attempt, error=error, retryable=not is_final)
            case Stopped():  # last of a closed set
                await self.confirm_stopped(node_id)

    def new_output_name(self) -> str:
        """A name for what is stored beside the log; it begins with the id of the run."""
        return f"{self._execution.execution_id}/{self._execution.new_id()}"

    async def _report_progress(self, node_id: str, percent: float | None, message: str | None) -> None:
        attempt = self._execution.state.nodes[node_id].attempt
        await self._tell(ReportNodeProgress, node_id, attempt=attempt, progress=percent, message=message)

    async def _leave_for_others(self, node_id: str, task: str) -> None:
        """Leave a node at work as it is, since a result that it needs must be computed by code that is missing here.

        The run is then handed over or held. That this worker leaves the node does not count as its death.
        """
        self._starter.needs_again(node_id, task)
        if self._starter.is_task(node_id):
            attempt = self._execution.state.nodes[node_id].attempt
            await self._tell(ReportNodeProgress, node_id, attempt=attempt, extra={HANDED_BACK: True})

    async def _run_inside(self, node_id: str, block: Step) -> None:
        try:
            await self._run_block(self, node_id, block, self._places.get(node_id, Place()))
        except ChildFailedError as failure:
            await self._fail_block(node_id, error_of_block(failure.node, isolated=failure.is_isolated))
        except ResultLostError as lost:
            await self._fail_block(node_id, describe(lost))
        except BlockFailedError as failure:
            await self._fail_block(node_id, describe(failure.error))
        else:
            await self._tell(SucceedNode, node_id, output={VALUE: self._result_of_rounds(node_id)})

    async def _fail_block(self, node_id: str, error: JsonObject) -> None:
        rounds = self._result_of_rounds(node_id)
        if rounds is not None:
            error = {**error, "detail": {**error.get("detail", {}), ROUNDS: rounds}}
        await self._tell(FailNode, node_id, error=error, retryable=False)

    def _result_of_rounds(self, node_id: str) -> JsonObject | None:
        rounds = self._rounds.pop(node_id, None)
        return None if rounds is None else rounds.result(self._execution.state)

    async def walk_inside(self, node_id: str) -> None:
        """Make the steps known that are inside the finished block around a node: run its code, which calls nothing.

        All in it is decided, and its nodes have ended. Nothing becomes known if a decision of the block is lost.
        """
        around = [known for known in self._steps if node_id.startswith((f"{known}[", f"{known}/"))]
        for block in sorted(around, key=len)[:1]:
            if self._execution.state.nodes[block].status is NodeStatus.SUCCEEDED:
                self._walked = node_id
                try:
                    with contextlib.suppress(ResultLostError):
                        await self._run_block(self, block, self._steps[block], self._places.get(block, Place()))
                finally:
                    self._walked = None

    async def _tell(self, command: type[NodeCommand], node_id: str, **fields: Any) -> bool:  # noqa: ANN401 wire fields
        """Give a command on the node's behalf; False if a cancel, or another worker, was first."""
        try:
            await self._execution.do(self._starter.command(command, node_id, **fields), observed=True)
        except CommandRejected:
            return False
        return True


def _commit(events: list[Event], state: ExecutionState) -> Commit:
    return Commit(events, fold(events, state) if events else state)

"""What is done about the nodes of a flow: tasks are called, waits wait, blocks run what is inside them."""

import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any

from pyoco_server.app.attempts import Attempt, Failed, Function, Outcome, Stopped, Succeeded, describe
from pyoco_server.app.backoff import pause
from pyoco_server.app.context import Place, RunScope
from pyoco_server.app.driver import Driver
from pyoco_server.app.outputs import VALUE, to_output
from pyoco_server.app.ports import Workshop
from pyoco_server.app.progress import ProgressDesk
from pyoco_server.app.results import ResultKeeper
from pyoco_server.core import (
    Actor,
    ActorKind,
    CommandRejected,
    Event,
    ExecutionState,
    NodeNotStoppableError,
    NodeState,
    add_node,
    confirm_stopped,
)
from pyoco_server.core.commands import FailNode, NodeCommand, PutNodeWaiting, ReportNodeProgress, StartNode, SucceedNode
from pyoco_server.core.wire import JsonObject, rfc3339
from pyoco_server.flows.model import Step, TaskSpec, TaskStep, WaitSpec
from pyoco_server.flows.plan import block_type, task_node


class ChildFailedError(Exception):
    """A node inside a block did not succeed, so the block cannot."""

    def __init__(self, node: NodeState) -> None:
        super().__init__(f"node '{node.node_id}' ended {node.status}")
        self.node = node


RunBlock = Callable[["Work", str, Step, Place], Coroutine[Any, Any, None]]


class Work:
    """The work of one run, as its driver has it done."""

    def __init__(
        self,
        driver: Driver,
        steps: Mapping[str, Step],
        functions: Mapping[str, Function],
        scope: RunScope,
        keeper: ResultKeeper,
        *,
        workshop: Workshop,
        run_block: RunBlock,
        worker_id: str,
        chance: random.Random,
    ) -> None:
        self.driver = driver
        self.scope = scope
        self._execution = driver.execution
        self._steps = dict(steps)
        self._functions = functions
        self._keeper = keeper
        self._workshop = workshop
        self._run_block = run_block
        self._worker_id = worker_id
        self._chance = chance
        self._actor = Actor(ActorKind.SYSTEM, worker_id)
        self._places: dict[str, Place] = {}
        self._attempts: dict[str, Attempt] = {}
        self._progress = ProgressDesk(self._report_progress)

    # --- What the driver asks for ------------------------------------------------------------------------------------

    def knows(self, node_id: str) -> bool:
        """Is the node one of the flow's?"""
        return node_id in self._steps

    async def prepare(self) -> None:
        """Run again what succeeded in another process and whose value the log could not hold."""
        for node_id in [lost for lost in self._keeper.lost if lost in self._steps]:
            await self._recover(node_id)

    async def run(self, node_id: str) -> None:
        """Begin the node's next attempt and see it through."""
        node, step = self._execution.state.nodes[node_id], self._steps[node_id]
        inside_already = node.is_at_work and node.worker_id == self._worker_id and not isinstance(step, TaskStep)
        if not inside_already:  # a block we had put aside is gone on with; anything else is a new attempt
            attempt = node.attempt + 1
            if not await self._tell(StartNode, node_id, attempt=attempt, worker_id=self._worker_id):
                return
        match step:
            case TaskStep(task) if task.wait is not None:
                await self._wait(node_id, task.wait)
            case TaskStep(task):
                await self._attempt(node_id, task)
            case block:
                await self._run_inside(node_id, block)

    async def retry(self, node_id: str) -> None:
        """Begin another attempt after the pause the task's policy asks for."""
        step = self._steps[node_id]
        if isinstance(step, TaskStep):
            failures = self._execution.state.nodes[node_id].failures
            await self._execution.clock.sleep(pause(step.task.backoff, failures, self._chance))
        await self.run(node_id)

    async def wake(self, node_id: str, given: JsonObject) -> None:
        """A wait is over: what it was resumed with is its result."""
        value = given.get("input")
        self._keeper.hand_over(node_id, value)
        await self._tell(SucceedNode, node_id, output=to_output(value))

    def ask_to_stop(self, node_id: str) -> bool:
        """Ask whoever is at work on the node to stop."""
        attempt = self._attempts.get(node_id)
        if attempt is not None:
            attempt.ask_to_stop()
        return attempt is not None

    def make_stop(self) -> None:
        """Give up on everything at work."""
        for attempt in self._attempts.values():
            attempt.make_stop()

    async def confirm_stopped(self, node_id: str) -> None:
        """Record that nobody is at work on the node."""

        def decision(state: ExecutionState) -> list[Event]:
            return confirm_stopped(
                self._execution.graph,
                state,
                node_id,
                actor=self._actor,
                now=self._execution.clock.now(),
                new_id=self._execution.new_id,
            )

        with contextlib.suppress(NodeNotStoppableError):  # it has ended otherwise meanwhile: just as well
            await self._execution.decide(decision)

    # --- For blocks --------------------------------------------------------------------------------------------------

    async def child(self, node_id: str, step: Step, place: Place) -> None:
        """Run a node inside a block, or take note of how it ended before; ChildFailedError unless it succeeded."""
        self._steps[node_id] = step
        self._places[node_id] = place
        if node_id not in self._execution.state.nodes:
            await self._execution.decide(lambda state: self._added(state, node_id, step))
        if node_id in self._keeper.lost:
            await self._recover(node_id)
        node = await self.driver.end_of(node_id)
        if node.status != "SUCCEEDED":
            raise ChildFailedError(node)

    async def decide_once(self, node_id: str, key: str, evaluate: Callable[[], Any]) -> Any:  # noqa: ANN401 any value
        """What a block decided about ``key``: as the log has it, or decided now and put on record.

        Results change while a block runs; whoever runs its code again must come to the same decisions.
        """
        if (node_id, key) not in self._keeper.decisions:
            value = evaluate()
            output = to_output(value)
            if VALUE not in output:
                return value
            attempt = self._execution.state.nodes[node_id].attempt
            await self._tell(ReportNodeProgress, node_id, attempt=attempt, metrics={"decision": {"key": key, **output}})
            return value
        return self._keeper.decisions[node_id, key]

    def _added(self, state: ExecutionState, node_id: str, step: Step) -> list[Event]:
        when: dict[str, Any] = {"now": self._execution.clock.now(), "new_id": self._execution.new_id}
        if not isinstance(step, TaskStep):
            return add_node(state, node_id, block_type(step), **when)
        node = task_node(node_id, step.task)
        return add_node(state, node_id, node.node_type, retries=node.retries, described=node.extra, **when)

    # --- Nodes -------------------------------------------------------------------------------------------------------

    async def _attempt(self, node_id: str, task: TaskSpec) -> None:
        number = self._execution.state.nodes[node_id].attempt
        attempt = self._begin(node_id, task)
        try:
            outcome = await attempt.run()
        finally:
            del self._attempts[node_id]
        await self._progress.drained(node_id)
        await self._report(node_id, number, outcome)

    def _begin(self, node_id: str, task: TaskSpec) -> Attempt:
        context = self.scope.context(self._places.get(node_id, Place()))
        context.report_to(self._progress.reporter(node_id))
        attempt = Attempt(task, self._functions[task.function or task.name], context, self._workshop)
        self._attempts[node_id] = attempt
        return attempt

    async def _report(self, node_id: str, attempt: int, outcome: Outcome) -> None:
        match outcome:
            case Succeeded(value):
                self._keeper.hand_over(node_id, value)
                await self._tell(SucceedNode, node_id, attempt=attempt, output=to_output(value))
            case Failed(error):
                await self._tell(FailNode, node_id, attempt=attempt, error=error)
            case Stopped():  # last of a closed set
                await self.confirm_stopped(node_id)

    async def _report_progress(self, node_id: str, percent: float | None, message: str | None) -> None:
        attempt = self._execution.state.nodes[node_id].attempt
        await self._tell(ReportNodeProgress, node_id, attempt=attempt, progress=percent, message=message)

    async def _wait(self, node_id: str, wait: WaitSpec) -> None:
        extra: JsonObject = {}
        if wait.deadline_sec is not None:
            extra["deadline"] = rfc3339(self._execution.clock.now() + timedelta(seconds=wait.deadline_sec))
            if wait.has_default:
                extra["default"] = wait.default
        await self._tell(PutNodeWaiting, node_id, wait_key=wait.key, prompt=dict(wait.prompt), extra=extra)

    async def _run_inside(self, node_id: str, block: Step) -> None:
        try:
            await self._run_block(self, node_id, block, self._places.get(node_id, Place()))
        except ChildFailedError as failure:
            error = failure.node.error or {"code": "CHILD_CANCELED", "message": str(failure)}
            await self._tell(FailNode, node_id, error=error, retryable=False)
        except Exception as error:  # noqa: BLE001 a choice that fits no case, an expression that fails: the flow's own
            await self._tell(FailNode, node_id, error=describe(error), retryable=False)
        else:
            await self._tell(SucceedNode, node_id, output={VALUE: None})

    async def _recover(self, node_id: str) -> None:
        step = self._steps[node_id]
        self._keeper.lost.remove(node_id)
        if isinstance(step, TaskStep):
            outcome = await self._begin(node_id, step.task).run()
            if isinstance(outcome, Succeeded):
                self._keeper.keep(node_id, outcome.value)

    async def _tell(self, command: type[NodeCommand], node_id: str, **fields: Any) -> bool:  # noqa: ANN401 wire fields
        """Give a command on the node's behalf; False if a cancel, or another worker, was first."""
        given: Any = command(execution_id=self._execution.execution_id, actor=self._actor, node_id=node_id, **fields)
        try:
            await self._execution.do(given, observed=True)
        except CommandRejected:
            return False
        return True

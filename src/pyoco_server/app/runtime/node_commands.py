"""The commands that one worker gives about the nodes of one run, and the recorder that writes outcomes with them.

A node that becomes ready is started by the worker that drives the run, in the commit that made it ready
(:meth:`NodeCommands.follow_ups`): the start costs no append of its own.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from pyoco_server.app.ports import Clock, TaskExecutor
from pyoco_server.app.runtime.attempt import Function
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.outputs import Outputs, ValueOwner
from pyoco_server.app.runtime.plan_cache import CODE, RunPlan
from pyoco_server.app.runtime.results import ResultKeeper
from pyoco_server.app.runtime.unused_params import UNUSED, Unused, read_unused
from pyoco_server.app.wheels.used import WHEELS, read_wheels
from pyoco_server.core import (
    Actor,
    ActorKind,
    Command,
    CommandRejected,
    Commit,
    Event,
    ExecutionState,
    NodeNotStoppableError,
    NodeStatus,
    confirm_stopped,
    fold,
)
from pyoco_server.core.commands import FailNode, NodeCommand, PutNodeWaiting, StartNode, SucceedNode
from pyoco_server.core.json_codec import JsonObject, rfc3339
from pyoco_server.core.payloads import NodeReady, NodeStarted
from pyoco_server.flows.model import Step, TaskStep, WaitSpec
from pyoco_server.flows.prompts import has_templates

T = TypeVar("T")


class NodeCommands:
    """Makes one worker's commands about one run; knows the run's steps and which code this process has for them."""

    def __init__(
        self,
        run_id: str,
        functions: Mapping[str, Function],
        *,
        worker_mark: str,
        clock: Clock,
        code: str | None = None,
        wheels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``code`` is the digest of the worker's flow, ``wheels`` those in use here; the log names both."""
        self.steps: dict[str, Step] = {}
        """By node; blocks add to it as they create nodes."""
        self._lacking: frozenset[str] = frozenset()
        self._lost: dict[str, str] = {}
        self._functions = functions
        self.worker_mark = worker_mark
        self.actor = Actor(ActorKind.SYSTEM, worker_mark)
        self._run_id = run_id
        self._clock = clock
        self.unused: Unused = {}
        """Parameters nothing takes, which the log is to name."""
        self._wheels = dict(wheels)
        self.code: JsonObject = {} if code is None else {"sha256": code}
        """What the log is to name as the code."""
        self._named: JsonObject = {WHEELS: {}, UNUSED: {}, CODE: {}}

    def drive_on(self, plan: RunPlan) -> None:
        """Take the steps that the run is driven on."""
        self.steps, self._lacking = dict(plan.steps), plan.lacking

    def lacks(self, node_id: str) -> str | None:
        """Return the name of the code that this process would need to start the node; None if it has it."""
        if node_id in self._lost:
            return self._lost[node_id]
        step = self.steps.get(node_id)
        if step is None:
            return node_id if node_id in self._lacking else None
        if not isinstance(step, TaskStep) or step.task.wait is not None:
            return None
        task = step.task
        return task.name if task.unwritten or (task.function or task.name) not in self._functions else None

    def needs_again(self, node_id: str, task: str) -> None:
        """Remember that the node needs a lost result of ``task``, whose function this process does not have."""
        self._lost[node_id] = task

    def needs(self, state: ExecutionState) -> tuple[str, ...]:
        """Return the names of missing code that keep nodes from being started; nothing if the run is to be cancelled.

        A node that waits, or was resumed, needs no code.
        """
        if state.is_cancel_requested or state.is_terminal:
            return ()
        due = [node for node in state.live_nodes() if node.status is not NodeStatus.WAITING and not node.resumption]
        return tuple(sorted({missing for node in due if (missing := self.lacks(node.node_id)) is not None}))

    def knows(self, node_id: str) -> bool:
        """Is the node one of the flow's, whether or not its code is here?"""
        return node_id in self.steps or node_id in self._lacking

    def forgo_unused(self) -> None:
        """Name no unused parameters but those that the log names: the worker that started the run found them."""
        self.unused = self._named[UNUSED]

    def listen(self, events: Sequence[Event], _: ExecutionState) -> None:
        """Remember what the log named last."""
        for event in events:
            payload = event.payload
            if type(payload) is NodeStarted and payload.extra:
                extra = payload.extra
                said = {
                    WHEELS: read_wheels(extra.get(WHEELS)),
                    UNUSED: read_unused(extra.get(UNUSED)),
                    CODE: extra.get(CODE),
                }
                self._named |= {name: value for name, value in said.items() if value is not None}

    def _news(self) -> JsonObject:
        """What the log does not name yet."""
        known: JsonObject = {WHEELS: self._wheels, UNUSED: self.unused, CODE: self.code}
        news = {name: value for name, value in known.items() if value != self._named[name]}
        if not self.code:  # only a worker that has the flow can name its code
            news.pop(CODE, None)
        return news

    def follow_ups(self, events: Sequence[Event], state: ExecutionState) -> Iterator[Command]:
        """Start the nodes that ``events`` made ready; a wait waits from the same commit on."""
        for event in events:
            payload = event.payload
            if type(payload) is not NodeReady or payload.node_id not in self.steps or self.lacks(payload.node_id):
                continue
            node, step = state.nodes[payload.node_id], self.steps[payload.node_id]
            if node.status is NodeStatus.READY:
                yield self.command(StartNode, node.node_id, attempt=node.attempt + 1, worker_id=self.worker_mark)
                wait = step.task.wait if isinstance(step, TaskStep) else None
                if wait is not None and not has_templates(wait.prompt):  # else when the results before it are known
                    yield self.waiting(node.node_id, wait)

    def is_task(self, node_id: str) -> bool:
        """Is the node a task with a function, not a wait and not a block?"""
        step = self.steps.get(node_id)
        return isinstance(step, TaskStep) and step.task.wait is None

    def waiting(self, node_id: str, wait: WaitSpec, prompt: Mapping[str, Any] | None = None) -> Command:
        """Put a node to wait, for as long as its author allows; ``prompt`` is the wait's, rendered."""
        asked = dict(wait.prompt if prompt is None else prompt)
        extra: JsonObject = {}
        if wait.deadline_sec is not None:
            extra["deadline"] = rfc3339(self._clock.now() + timedelta(seconds=wait.deadline_sec))
            if wait.has_default:
                extra["default"] = wait.default
        return self.command(PutNodeWaiting, node_id, wait_key=wait.key, prompt=asked, extra=extra)

    def command(self, command: type[NodeCommand], node_id: str, **fields: Any) -> Command:  # noqa: ANN401 wire fields
        """Make a command about a node of this run; NODE_STARTED also names what the log does not name yet."""
        if command is StartNode:
            fields["extra"] = {**fields.get("extra", {}), **self._news()}
        given: Any = command(execution_id=self._run_id, actor=self.actor, node_id=node_id, **fields)
        made: Command = given
        return made


class OutcomeRecorder:
    """Writes into the log what came of a node, as commands of one worker.

    Contract: a value is stored before the command that names it. If the command is refused, since a cancel or another
    worker was first, the value is deleted again and the method returns False.
    """

    def __init__(
        self,
        execution: Execution,
        commands: NodeCommands,
        keeper: ResultKeeper,
        outputs: Outputs,
        executor: TaskExecutor,
    ) -> None:
        """``executor`` runs the code of users that writing their values may need."""
        self._execution = execution
        self.aside = executor.aside
        """Makes a call that runs code of users in a thread."""
        self._commands = commands
        self._keeper = keeper
        self._outputs = outputs

    async def report(self, command: type[NodeCommand], node_id: str, **fields: Any) -> bool:  # noqa: ANN401 wire fields
        """Give a command on the node's behalf; False if it was refused."""
        try:
            await self._execution.do(self._commands.command(command, node_id, **fields), observed=True)
        except CommandRejected:
            return False
        return True

    async def succeed(self, node_id: str, value: Any, **fields: Any) -> bool:  # noqa: ANN401 whatever a task returned
        """Record that the node succeeded with ``value``."""
        return await self.store(
            self._keeper.owner(node_id),
            value,
            lambda output: self.report(SucceedNode, node_id, output=output, **fields),
        )

    async def fail(self, node_id: str, error: JsonObject, *, attempt: int) -> bool:
        """Record that the attempt failed for good: the node is not tried again."""
        return await self.report(FailNode, node_id, attempt=attempt, error=error, retryable=False)

    async def store(
        self,
        owner: ValueOwner,
        value: Any,  # noqa: ANN401 whatever a task returned
        record: Callable[[JsonObject], Awaitable[object]],
    ) -> bool:
        """Store a value, have ``record`` commit what the log says of it, and delete it if that was refused."""
        output = await self._outputs.written(owner, self._new_output_name, value, self.aside)
        self._keeper.hand_over(owner, value)
        if await record(output):
            return True
        self._keeper.retract(owner)
        await self._outputs.forget(output)
        return False

    def _new_output_name(self) -> str:
        """A name for what is stored beside the log; it begins with the id of the run."""
        return f"{self._execution.execution_id}/{self._execution.new_id()}"

    async def confirm_stopped(self, node_id: str) -> None:
        """Record that nothing is at work on the node; if it has ended otherwise meanwhile, do nothing."""

        def decision(state: ExecutionState) -> Commit:
            now, new_id = self._execution.clock.now(), self._execution.new_id
            actor = self._commands.actor
            events = confirm_stopped(self._execution.graph, state, node_id, actor=actor, now=now, new_id=new_id)
            return Commit(events, fold(events, state) if events else state)

        with contextlib.suppress(NodeNotStoppableError):
            await self._execution.decide(decision)

"""Blocks, the steps that are more than a task: choices, loops, parallel groups.

A block is a node that stays at work while nodes inside it are created and run. When a worker takes over, it runs the
block's code again from the beginning: nodes that have ended and decisions that were made are taken from the log, so the
same branches are chosen and the same node ids given.

A task of a loop that isolates its failure ends its round, and the loop continues with the others (see ``rounds.py``).
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from pyoco.core.exceptions import SwitchNoMatch, UntilMaxIterationsExceeded  # type: ignore[import-untyped]

from pyoco_server.app.runtime.attempt import describe
from pyoco_server.app.runtime.context import Place, RunScope
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.node_commands import NodeCommands, OutcomeRecorder
from pyoco_server.app.runtime.outputs import VALUE
from pyoco_server.app.runtime.results import ResultKeeper
from pyoco_server.app.runtime.rounds import (
    ROUNDS,
    BlockFailedError,
    ChildFailedError,
    Rounds,
    RunEndedError,
    SiblingFailedError,
    described_in_round,
    error_of_block,
    is_in_loop,
)
from pyoco_server.core import (
    Commit,
    Event,
    ExecutionState,
    NodeNotStoppableError,
    NodeState,
    NodeStatus,
    add_node,
    cancel_node,
    fold,
)
from pyoco_server.core.commands import ReportNodeProgress, SucceedNode
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.flows.expressions import evaluate
from pyoco_server.flows.limits import NO_LIMITS, RunLimits, RunTooLargeError
from pyoco_server.flows.model import ForEach, Parallel, Repeat, Step, Steps, Switch, TaskStep, Until
from pyoco_server.flows.operations import Cost, ElsewhereError
from pyoco_server.flows.plan import block_type, name_steps, task_node
from pyoco_server.values.errors import USER_CODE_ERRORS, ResultLostError, lost_behind

DEFAULT_MAX_ITER = 1_000

Evaluate = Callable[[str, Callable[[Cost], Any]], Awaitable[Any]]
"""Evaluates for the node of that id, on the loop or in a thread; lost results are computed first if they may be."""


class ChildNodes(Protocol):
    """Starts nodes inside a block and waits for them; what ``RunDriver`` provides."""

    async def end_of(self, node_id: str) -> NodeState:
        """Start the node if it is due, and wait for its end."""
        ...

    async def together(
        self, bodies: Sequence[Callable[[], Awaitable[None]]], on_failure: Callable[[], Awaitable[None]]
    ) -> None:
        """Run several at once; ``on_failure`` is awaited at the first error, which is raised when all have ended."""
        ...


class Blocks:
    """What the blocks of one run share: where each node stands, and which blocks start nothing more."""

    def __init__(
        self,
        execution: Execution,
        commands: NodeCommands,
        recorder: OutcomeRecorder,
        scope: RunScope,
        keeper: ResultKeeper,
        limits: RunLimits = NO_LIMITS,
    ) -> None:
        self.limits = limits
        self.execution = execution
        self.commands = commands
        self.recorder = recorder
        self.scope = scope
        self.keeper = keeper
        self.places: dict[str, Place] = {}
        self.abandoned: set[str] = set()
        """Prefixes of the nodes inside blocks in which a node has failed."""

    def place(self, node_id: str) -> Place:
        """The loops around a node."""
        return self.places.get(node_id, Place())

    def is_abandoned(self, node_id: str) -> bool:
        """Has a node failed beside this one, or beside a block around it?"""
        return any(node_id.startswith(block) for block in self.abandoned)

    async def execute(
        self, node_id: str, block: Step, children: ChildNodes, evaluate: Evaluate, *, attempt: int
    ) -> None:
        """Run the attempt of a block that has started to its end, and report the end."""
        run = BlockRun(self, node_id, self.place(node_id), children, evaluate)
        try:
            await run.run(block)
        except ChildFailedError as failure:
            await self._fail(run, error_of_block(failure.node, isolated=failure.is_isolated), attempt)
        except ResultLostError as lost:
            await self._fail(run, describe(lost), attempt)
        except BlockFailedError as failure:
            error = await self.recorder.aside(partial(describe, failure.error))
            await self._fail(run, error, attempt)
        except RunEndedError:  # what ended the run ends the block
            return
        else:
            output: JsonObject = {VALUE: run.result_of_rounds()}
            await self.recorder.report(SucceedNode, node_id, attempt=attempt, output=output)

    async def _fail(self, run: "BlockRun", error: JsonObject, attempt: int) -> None:
        rounds = run.result_of_rounds()
        if rounds is not None:
            error = {**error, "detail": {**error.get("detail", {}), ROUNDS: rounds}}
        await self.recorder.fail(run.node_id, error, attempt=attempt)

    async def walk_inside(self, node_id: str, *, children: ChildNodes, evaluate: Evaluate) -> None:
        """Make the steps known that are inside the finished block around a node: run its code, which calls nothing.

        All in it is decided, and its nodes have ended. Nothing becomes known if a decision of the block is lost, or if
        ``evaluate`` may not load it.
        """
        steps = self.commands.steps
        around = [known for known in steps if node_id.startswith((f"{known}[", f"{known}/"))]
        for block in sorted(around, key=len)[:1]:
            if self.execution.state.nodes[block].status is NodeStatus.SUCCEEDED:
                with contextlib.suppress(ResultLostError, ElsewhereError):
                    await BlockRun(self, block, self.place(block), children, evaluate, walked=node_id).run(steps[block])


class BlockRun:
    """One run of one block's code."""

    def __init__(
        self,
        blocks: Blocks,
        node_id: str,
        place: Place,
        children: ChildNodes,
        evaluate: Evaluate,
        *,
        walked: str | None = None,
    ) -> None:
        """``walked``: the node for whose steps the code of a finished block is run again."""
        self.node_id = node_id
        self._blocks = blocks
        self._place = place
        self._children = children
        self._evaluate = evaluate
        self._walked = walked
        self._rounds: Rounds | None = None

    async def run(self, block: Step) -> None:
        """Run the block; raises how it failed, if it did."""
        match block:
            case Switch():
                await self._switch(block)
            case Repeat():
                await self._repeat(block)
            case ForEach():
                await self._for_each(block)
            case Until():
                await self._until(block)
            case Parallel():
                await self._parallel(block)
            case TaskStep():  # last of a closed set
                raise TypeError("a task is not a block")

    def result_of_rounds(self) -> JsonObject | None:
        """The counts of rounds that a loop reports; None for what is no loop, or if no round failed."""
        return None if self._rounds is None else self._rounds.result(self._blocks.execution.state)

    # --- The kinds of blocks -----------------------------------------------------------------------------------------

    async def _parallel(self, block: Parallel) -> None:
        """Run the branches side by side; an isolated failure ends its branch at once and the round when all ended."""
        isolated: list[ChildFailedError] = []

        async def branch(index: int, steps: Steps) -> None:
            try:
                await self._body(f"{self.node_id}[{index}]", steps, self._place)
            except ChildFailedError as failure:
                if not failure.is_isolated:
                    raise
                isolated.append(failure)

        await self._together([partial(branch, *one) for one in enumerate(block.branches)])
        if isolated:  # the round ends with the failure that the log has first
            order = [*self._blocks.keeper.isolated]
            raise min(isolated, key=lambda failure: order.index(failure.node.node_id))

    async def _switch(self, block: Switch) -> None:
        value = await self._decide_once("on", lambda cost: self._value_of(block.on, self._place, cost))
        values = [case.value for case in block.cases]
        chosen = await self._evaluated(lambda cost: cost.place_of(value, values))
        if chosen is not None:
            await self._body(self.node_id, block.cases[chosen].body, self._place)
            return
        if block.default is None:
            raise BlockFailedError(SwitchNoMatch(block.on))
        await self._body(self.node_id, block.default, self._place)

    async def _repeat(self, block: Repeat) -> None:
        source = block.count
        if isinstance(source, int):
            count: Any = source
        else:
            count = await self._decide_once("count", lambda cost: cost.count(self._value_of(source, self._place, cost)))
        if type(count) not in {int, bool}:
            raise BlockFailedError(TypeError("Repeat count must evaluate to an integer."))
        if count < 0:
            raise BlockFailedError(ValueError("Repeat count cannot be negative."))
        self._check_rounds(count)
        rounds = self._rounds = Rounds(self.node_id, block.body, count)
        for index in range(count):
            frame = {"name": "repeat", "type": "repeat", "index": index, "iteration": index + 1, "count": count}
            await self._round(index, block.body, self._place.inside(frame), rounds)

    async def _for_each(self, block: ForEach) -> None:
        items = await self._decide_once("over", lambda cost: cost.items(self._value_of(block.over, self._place, cost)))
        if type(items) not in {list, tuple}:
            raise BlockFailedError(TypeError("ForEach source must evaluate to a list or tuple."))
        self._check_rounds(len(items))
        waiting = iter(enumerate(items))
        rounds = self._rounds = Rounds(self.node_id, block.body, len(items))

        async def one_after_the_other() -> None:
            for index, item in waiting:
                inside = _place_of_item(block, self._place, index, item, len(items))
                await self._round(index, block.body, inside, rounds)

        if items:
            await self._together([one_after_the_other] * min(block.parallel, len(items)))

    async def _until(self, block: Until) -> None:
        limit = block.max_iter or DEFAULT_MAX_ITER
        held: bool | None = None
        rounds = self._rounds = Rounds(self.node_id, block.body, None)
        for index in range(limit):
            self._check_rounds(index + 1)
            frame = {"name": "until", "type": "until", "index": index, "iteration": index + 1, "count": limit}
            inside = self._place.inside({**frame, "condition": held})
            is_complete = await self._round(index, block.body, inside, rounds)
            held = is_complete and await self._holds(index, block.condition, inside)
            if held:
                return
        raise BlockFailedError(UntilMaxIterationsExceeded(block.condition, limit))

    async def _holds(self, index: int, condition: str, place: Place) -> bool:
        decided = await self._decide_once(
            f"round {index}", lambda cost: cost.truth(self._value_of(condition, place, cost))
        )
        return bool(decided)

    def _check_rounds(self, rounds: int) -> None:
        try:
            self._blocks.limits.check_rounds(rounds, f"'{self.node_id}'")
        except RunTooLargeError as error:
            raise BlockFailedError(error) from error

    # --- Rounds, bodies, nodes ---------------------------------------------------------------------------------------

    async def _round(self, index: int, steps: Steps, place: Place, rounds: Rounds) -> bool:
        """Run one round of a loop and count it; False if a task failed in it that isolates its failure."""
        rounds.begin()
        try:
            await self._body(f"{self.node_id}[{index}]", steps, place)
        except ChildFailedError as failure:
            rounds.fail(failure.node)
            if not failure.is_isolated:
                raise
            return False
        rounds.succeed()
        return True

    async def _body(self, prefix: str, steps: Steps, place: Place) -> None:
        for child_id, step in name_steps(steps, f"{prefix}/"):
            await self._child(child_id, step, place)

    async def _child(self, child_id: str, step: Step, place: Place) -> None:
        """Run a node inside the block, or take it as it ended before; ChildFailedError unless it succeeded."""
        blocks = self._blocks
        blocks.commands.steps[child_id] = step
        blocks.places[child_id] = place
        if child_id not in blocks.execution.state.nodes:
            if blocks.is_abandoned(child_id):
                raise SiblingFailedError(f"'{child_id}' was not started: a node beside it has failed")
            self._check_size(blocks.execution.state)
            await blocks.execution.decide(lambda state: self._added(state, child_id, step))
            if child_id not in blocks.execution.state.nodes:
                raise RunEndedError(f"'{child_id}' was not created: the run is cancelled or has ended")
            if blocks.is_abandoned(child_id):  # a node beside it failed while it was being added
                await self._cancel_wait(child_id)
        is_on_the_way = self._walked is not None and self._walked.startswith((f"{child_id}[", f"{child_id}/"))
        if is_on_the_way and blocks.execution.state.nodes[child_id].status is NodeStatus.SUCCEEDED:
            inner = BlockRun(blocks, child_id, place, self._children, self._evaluate, walked=self._walked)
            await inner.run(step)
        node = await self._children.end_of(child_id)
        if node.status is not NodeStatus.SUCCEEDED:
            raise ChildFailedError(node, is_isolated=child_id in blocks.keeper.isolated)

    def _check_size(self, state: ExecutionState) -> None:
        """Refuse another node in a run that is as large as a run may be."""
        try:
            self._blocks.limits.check_nodes(len(state.nodes) + 1)
            self._blocks.limits.check_events(state.version)
        except RunTooLargeError as error:
            raise BlockFailedError(error) from error

    def _added(self, state: ExecutionState, child_id: str, step: Step) -> Commit:
        if not isinstance(step, TaskStep):
            return _commit(add_node(state, child_id, block_type(step), **self._when()), state)
        node = task_node(child_id, step.task)
        described = described_in_round(step.task, node.extra) if is_in_loop(child_id) else node.extra
        added = add_node(state, child_id, node.node_type, retries=node.retries, described=described, **self._when())
        return _commit(added, state)

    async def _together(self, bodies: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run parts of the block side by side; when one fails, nothing more is started and waits inside end."""
        blocks, inside = self._blocks, f"{self.node_id}["

        async def abandon() -> None:
            blocks.abandoned.add(inside)
            for node in blocks.execution.state.live_nodes():
                if node.status is NodeStatus.WAITING and node.node_id.startswith(inside):
                    await self._cancel_wait(node.node_id)

        failed = [node_id for node_id in blocks.keeper.failed if node_id.startswith(inside)]
        if failed:  # under another process: nothing more is started
            await abandon()
        try:
            await self._children.together(bodies, abandon)
        except (ChildFailedError, SiblingFailedError):
            if failed:
                raise ChildFailedError(blocks.execution.state.nodes[failed[0]]) from None
            raise

    async def _cancel_wait(self, child_id: str) -> None:
        reason = "one beside it has failed"
        graph, actor = self._blocks.execution.graph, self._blocks.commands.actor

        def decision(state: ExecutionState) -> Commit:
            if state.is_cancel_requested or state.nodes[child_id].status is not NodeStatus.WAITING:
                return Commit([], state)
            return _commit(cancel_node(graph, state, child_id, actor=actor, reason=reason, **self._when()), state)

        with contextlib.suppress(NodeNotStoppableError):  # it was resumed
            await self._blocks.execution.decide(decision)

    # --- Decisions ---------------------------------------------------------------------------------------------------

    async def _decide_once(self, key: str, decide: Callable[[Cost], Any]) -> Any:  # noqa: ANN401 any value
        """What the block decided about ``key``: as the log has it, or decided now and recorded.

        Results change while a block runs, and a process that runs its code again must come to the same decisions. So
        a decision that cannot be stored is recorded, too, as lost: to read it in another process is ResultLostError.
        """
        blocks, node_id = self._blocks, self.node_id
        if (node_id, key) in blocks.keeper.decisions:
            decided = blocks.keeper.decisions[node_id, key]
            return await self._evaluated(lambda cost: cost.read(decided))
        value = await self._evaluated(decide)

        async def record(output: JsonObject) -> bool:
            attempt, decision = blocks.execution.state.nodes[node_id].attempt, {"key": key, **output}
            return await blocks.recorder.report(
                ReportNodeProgress, node_id, attempt=attempt, metrics={"decision": decision}
            )

        await blocks.recorder.store(blocks.keeper.owner(node_id, key), value, record)
        return value

    def _value_of(self, source: str, place: Place, cost: Cost) -> Any:  # noqa: ANN401 an expression has any value
        context = self._blocks.scope.context(place)
        return evaluate(source, ctx=context.expression_data(), env=context.env_data(), cost=cost)

    async def _evaluated(self, look: Callable[[Cost], Any]) -> Any:  # noqa: ANN401 any value
        """Evaluate for this block; BlockFailedError for what the flow's author and their values raise."""

        def looked(cost: Cost) -> Any:  # noqa: ANN401 any value
            try:
                return look(cost)
            except ElsewhereError:
                raise
            except USER_CODE_ERRORS as error:
                raise lost_behind(error) or BlockFailedError(error) from error

        return await self._evaluate(self.node_id, looked)

    def _when(self) -> dict[str, Any]:
        return {"now": self._blocks.execution.clock.now(), "new_id": self._blocks.execution.new_id}


def _place_of_item(block: ForEach, place: Place, index: int, item: Any, count: int) -> Place:  # noqa: ANN401
    frame = {
        "name": f"foreach:{block.item or block.over}",
        "type": "foreach",
        "index": index,
        "iteration": index + 1,
        "count": count,
        "item": item,
    }
    variables = {name: value for name, value in ((block.item, item), (block.index, index)) if name}
    return place.inside(frame, **variables)


def _commit(events: list[Event], state: ExecutionState) -> Commit:
    return Commit(events, fold(events, state) if events else state)

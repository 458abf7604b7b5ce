"""The driver of a run: decides, over the run's log, which attempt at which node starts, stops or starts again.

Three classes share the work on a run. :class:`RunDriver` decides. :class:`.NodeExecutor` executes an attempt that the
log says has started here, and reports how it ended. :class:`.Execution` reads and writes the log. The executor does not
know the driver; both see the effects of their work as commits.

The driver keeps nothing that the log does not have. When its process dies, the driver of another worker reads the log
and resumes every live node from it (``_resume_node``). A task that was at work is started again as a new attempt, and
the log counts the death (``crashes.py``). Should the old attempt still run, ``start_fence.py`` refuses a call that it
has not made yet, and the command handler its report (``STALE_ATTEMPT``).

How the driver knows that nothing is left: ``_busy`` counts everything in this process that will lead to a commit
without outside help: calls, pauses and steps of blocks, but not a block that waits for a node inside it. When the count
falls to zero and the run has not ended, only a waiting node or missing code can be the reason: the run can be parked or
held.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from enum import Enum, auto, unique
from typing import Any, Final

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runtime.attempt import pause
from pyoco_server.app.runtime.crashes import CrashHistory
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.node_commands import NodeCommands
from pyoco_server.app.runtime.node_executor import NodeExecutor
from pyoco_server.app.runtime.start_fence import StartFence
from pyoco_server.core import (
    CommandRejected,
    Commit,
    Effect,
    EndExecution,
    Event,
    ExecutionState,
    InterruptNode,
    NodeState,
    NodeStatus,
    RetryNode,
    RunNode,
    WakeNode,
    effects,
)
from pyoco_server.core.commands import FailNode, StartNode
from pyoco_server.core.payloads import (
    ExecutionCancelRequested,
    NodeCanceled,
    NodeFailed,
    NodeStarted,
    NodeSucceeded,
)
from pyoco_server.flows.model import Step, TaskStep
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)


@unique
class DriveOutcome(Enum):
    """Why a driver stopped driving."""

    ENDED = auto()
    PARKED = auto()
    """Nothing runs and nothing can, until a waiting node is resumed."""
    HELD = auto()
    """Nothing runs and nothing can, since this process lacks the code of the nodes that are next."""
    TAKEN_OVER = auto()
    """Another process drives the run now: it started a node."""


RELEASE_SEC: Final = 0.5
"""How long abandoned calls may take to notice."""


class RunDriver:
    """Drives one run from where its log stands until it ends, or nothing can run here; use once.

    Contract: a node is executed here only after the log has this process's NODE_STARTED for it, at most once for each
    attempt; and when another process starts a node, this one starts nothing more.
    """

    def __init__(
        self,
        execution: Execution,
        commands: NodeCommands,
        nodes: NodeExecutor,
        *,
        crashes: CrashHistory,
        chance: random.Random,
        grace_sec: float,
        fence: StartFence | None = None,
    ) -> None:
        """``fence`` is needed where other processes may take over the run; ``chance`` varies pauses before retries."""
        self.execution = execution
        self._commands = commands
        self._nodes = nodes
        self._crashes = crashes
        self._fence = fence
        self._chance = chance
        self._grace_sec = grace_sec
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Future[None]] = {}
        self._grace: asyncio.Task[None] | None = None
        self._busy = 0
        self._at_rest = asyncio.Event()
        self._cancel_requested = asyncio.Event()
        self._crash: BaseException | None = None
        self._taken_over = False

    @property
    def state(self) -> ExecutionState:
        """The execution's newest known state."""
        return self.execution.state

    async def drive(self, started: Collection[str] = ()) -> DriveOutcome:
        """Drive the run from where the log stands; return when there is nothing left to do, for good or for now.

        ``started`` are nodes that this process has started in the log and not executed yet.
        """
        await self._prepare()
        self.execution.subscribe(self._on_commit)
        self.execution.follow_ups = self._commands.follow_ups
        try:
            for node in sorted(self.state.live_nodes(), key=lambda live: live.node_id):
                if node.node_id in started:
                    self._execute(node)
                self._resume_node(node)
                if self.state.is_cancel_requested and node.is_at_work:
                    self._interrupt(node.node_id)  # the process that executed it is gone
            self._check_rest()
            await self._at_rest.wait()
        finally:
            self.execution.follow_ups = None
            self.execution.unsubscribe(self._on_commit)
            await self._abandon_tasks()
        if self._crash is not None:
            raise self._crash
        if self.state.is_terminal:
            return DriveOutcome.ENDED
        if self._taken_over:
            return DriveOutcome.TAKEN_OVER
        return DriveOutcome.HELD if self._commands.needs(self.state) else DriveOutcome.PARKED

    async def _prepare(self) -> None:
        """Load stored results before anything starts. It may take as long as a task, so a cancel ends it early."""
        if not self._nodes.must_prepare or self.state.is_cancel_requested:
            return
        self.execution.subscribe(self._on_commit_while_preparing)
        self._busy += 1
        preparing = asyncio.create_task(self._nodes.prepare(), name=f"{self.execution.execution_id} prepare")
        cancelled = asyncio.create_task(self._cancel_requested.wait(), name=f"{self.execution.execution_id} cancel")
        try:
            await asyncio.wait({preparing, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
            preparing.cancel()
            await asyncio.wait({preparing}, timeout=RELEASE_SEC)
            self.execution.unsubscribe(self._on_commit_while_preparing)
            self._busy -= 1
        if preparing.done() and not preparing.cancelled():
            preparing.result()

    def _on_commit_while_preparing(self, events: Sequence[Event], _: ExecutionState) -> None:
        if any(isinstance(event.payload, ExecutionCancelRequested) for event in events):
            self._cancel_requested.set()

    # --- For blocks: nodes inside nodes (see control_flow.ChildNodes) ------------------------------------------------

    async def end_of(self, node_id: str) -> NodeState:
        """Start a node inside a block if it is due, and wait for its end; the block is not busy meanwhile."""
        node = self.state.nodes[node_id]
        if node.is_terminal:
            return node
        self._resume_node(node)
        end = self._ends.setdefault(node_id, asyncio.get_running_loop().create_future())
        self._busy -= 1
        self._check_rest()
        await end  # _resolve_end has counted the block as busy again, so that the count does not fall to zero between
        return self.state.nodes[node_id]

    async def together(
        self, bodies: Sequence[Callable[[], Awaitable[None]]], on_failure: Callable[[], Awaitable[None]]
    ) -> None:
        """Run several at once, and raise the error that came first when all have come to rest.

        The block's own place in the busy count passes to one of the bodies, and the last to finish returns it: in
        between, a body that only waits for a node is not counted.
        """
        left = len(bodies)
        first: list[Exception] = []
        self._busy += left - 1

        async def one(body: Callable[[], Awaitable[None]]) -> None:
            nonlocal left
            try:
                await body()
            except UnavailableError:  # no body has failed; this process cannot continue, but is not at rest
                self._busy += 1
                raise
            except Exception as error:  # noqa: BLE001 raised below, when the others have come to rest
                first.append(error)
                if len(first) == 1:
                    await on_failure()
            finally:
                left -= 1
                self._busy -= 1 if left else 0
                self._check_rest()

        tasks = [asyncio.create_task(one(body)) for body in bodies]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        if first:
            raise first[0]

    # --- Reactions to commits ----------------------------------------------------------------------------------------

    def _on_commit(self, events: Sequence[Event], state: ExecutionState) -> None:
        me = self._commands.worker_mark
        starts = [payload for event in events if type(payload := event.payload) is NodeStarted]
        if any(start.worker_id is not None and start.worker_id != me for start in starts):
            self._taken_over = True
            self._at_rest.set()  # before the effects: the other process carries those out
            self.execution.follow_ups = None  # nor does a commit of ours that is about to be written start anything
        self._apply(effects(events, state))
        for start in starts:
            if start.worker_id == me:
                self._execute(state.nodes[start.node_id])
        if self._ends:
            for event in events:
                if isinstance(event.payload, NodeSucceeded | NodeFailed | NodeCanceled):
                    self._resolve_end(event.payload.node_id)

    def _apply(self, due: Iterable[Effect]) -> None:
        for effect in due:
            match effect:
                case RunNode(node_id=node_id):
                    self._start(node_id, self._run)
                case RetryNode(node_id=node_id):
                    self._start(node_id, self._retry)
                case WakeNode(node_id=node_id, input=given):
                    attempt = self.state.nodes[node_id].attempt
                    self._spawn(node_id, self._nodes.end_wait(node_id, given, attempt=attempt))
                case InterruptNode(node_id=node_id):
                    self._interrupt(node_id)
                case EndExecution():  # last of a closed set
                    self._at_rest.set()

    def _execute(self, node: NodeState) -> None:
        """Execute a node that a commit of ours has started, unless the coroutine that wrote the commit does.

        If we read our own commit late, another process may have started the node again behind it: then it is theirs.
        """
        is_ours = node.is_at_work and node.worker_id == self._commands.worker_mark
        if is_ours and (node.node_id, "run") not in self._running:
            self._spawn(node.node_id, self._nodes.execute(node.node_id, self, attempt=node.attempt))

    def _resolve_end(self, node_id: str) -> None:
        end = self._ends.pop(node_id, None)
        if end is not None and not end.done():
            self._busy += 1
            end.set_result(None)

    def _resume_node(self, node: NodeState) -> None:
        """Resume a live node that another process left where it is; one that this process is busy with stays."""
        if (node.node_id, "run") in self._running or self.state.is_cancel_requested:
            return
        if node.is_at_work and node.resumption is not None:
            self._spawn(node.node_id, self._nodes.end_wait(node.node_id, node.resumption, attempt=node.attempt))
        elif node.status is NodeStatus.READY or node.is_at_work:
            self._start(node.node_id, self._run)
        elif node.status is NodeStatus.RUNNING:
            self._start(node.node_id, self._retry)

    # --- Starting attempts -------------------------------------------------------------------------------------------

    async def _run(self, node_id: str) -> None:
        """Start the node's next attempt in the log, then execute it."""
        node, step = self.state.nodes[node_id], self._commands.steps[node_id]
        is_of_another = node.is_at_work and node.worker_id != self._commands.worker_mark
        is_our_block = node.is_at_work and not is_of_another and not isinstance(step, TaskStep)
        attempt = node.attempt if is_our_block else node.attempt + 1
        if not is_our_block:  # a block that we parked continues as the same attempt
            missing = await self._nodes.missing_code(node_id, self)
            if missing is not None:
                self._commands.needs_again(node_id, missing)
                return
            if not await self._start_attempt(node_id, step, attempt):
                return
            if is_of_another and isinstance(step, TaskStep) and self._fence is not None:
                await self._fence.until_others_are_late()
        await self._nodes.execute(node_id, self, attempt=attempt)

    async def _retry(self, node_id: str) -> None:
        """Start another attempt after the pause that the task's policy asks for."""
        step = self._commands.steps[node_id]
        if isinstance(step, TaskStep):
            failures = self.state.nodes[node_id].failures
            await self.execution.clock.sleep(pause(step.task.backoff, failures, self._chance))
        await self._run(node_id)

    async def _start_attempt(self, node_id: str, step: Step, attempt: int) -> bool:
        """Start the attempt in the log; False if it was not: another process was first, or the task must not be called.

        A task that is at work here was left by a worker that died, or was cut off. Its node fails if the task allows no
        further crash; otherwise NODE_STARTED counts the crash.
        """

        def decision(state: ExecutionState) -> Commit:
            node, extra, me = state.nodes[node_id], {}, self._commands.worker_mark
            if self._crashes.is_running_code(node, step):
                error = self._crashes.verdict(node, step, me)
                if error is not None:
                    fields: dict[str, Any] = {"attempt": attempt - 1, "error": error, "retryable": False}
                    failing = self._commands.command(FailNode, node_id, **fields)
                    return self.execution.step(state, failing, observed=True)
                extra = self._crashes.news(node, me)
            start = self._commands.command(StartNode, node_id, attempt=attempt, worker_id=me, extra=extra)
            return self.execution.step(state, start, observed=True)

        try:
            events = await self.execution.decide(decision)
        except CommandRejected:
            return False
        return any(type(event.payload) is NodeStarted and event.payload.node_id == node_id for event in events)

    # --- Cancelling --------------------------------------------------------------------------------------------------

    def _interrupt(self, node_id: str) -> None:
        if not self._nodes.ask_to_stop(node_id):
            self._spawn(node_id, self._nodes.confirm_stopped(node_id), kind="stop")
        if self._grace is None:
            self._busy += 1  # the end of the grace ends the run, so there is something left to do
            self._grace = asyncio.create_task(self._end_after_grace(), name=f"{self.execution.execution_id} grace")
            self._grace.add_done_callback(lambda done: self._finished(("", "grace"), done))

    async def _end_after_grace(self) -> None:
        """End the cancelled run when the grace is over, whether or not the interrupted calls have ended."""
        await self.execution.clock.sleep(self._grace_sec)
        log_error(
            _log,
            "ERR-PYOCO-0021",
            action="cancel_grace_over",
            level=logging.WARNING,
            reason=f"tasks did not end within {self._grace_sec} s of the cancel request: they are abandoned",
            run_id=self.execution.execution_id,
        )
        self._nodes.abandon_calls()
        await self.execution.decide(self.execution.ended_now)

    # --- Tasks of this process ---------------------------------------------------------------------------------------

    def _start(self, node_id: str, begin: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Start a node, unless its code is missing: then it stays as it is, and the others continue."""
        if self._commands.lacks(node_id) is None:
            self._spawn(node_id, begin(node_id))

    def _spawn(self, node_id: str, work: Coroutine[Any, Any, None], *, kind: str = "run") -> None:
        if not self._commands.knows(node_id) or self._at_rest.is_set():
            work.close()
            return
        self._busy += 1
        task = asyncio.get_running_loop().create_task(work, name=f"{self.execution.execution_id}/{node_id} {kind}")
        self._running[node_id, kind] = task
        task.add_done_callback(lambda done: self._finished((node_id, kind), done))

    def _finished(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        self._busy -= 1
        if not task.cancelled() and task.exception() is not None:
            self._crash = task.exception()
            self._at_rest.set()
        self._check_rest()

    def _check_rest(self) -> None:
        if self._busy == 0 or self.state.is_terminal:
            self._at_rest.set()

    async def _abandon_tasks(self) -> None:
        """Abandon everything that still runs here; what does not end soon is left to itself."""
        self._nodes.abandon_calls()
        started = [*self._running.values(), *([self._grace] if self._grace else [])]
        left = [task for task in started if not task.done()]  # usually only the one that wrote the end
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=RELEASE_SEC)
        for task in started:
            if task.done() and not task.cancelled():  # its done callback may not have run yet
                self._crash = self._crash or task.exception()
        if all(task.done() for task in left):
            self._nodes.close()

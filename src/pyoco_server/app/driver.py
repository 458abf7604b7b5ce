"""The driver: takes one execution from where its log stands to its end, or to where only people can go on.

It reacts to what the core says must happen (effects of commits, its own and those of others), has the work done (see
``app.work``), and waits until nothing is left. It keeps nothing that the log does not have: a driver that dies is
replaced by another that reads the log and goes on. A node whose code is missing here is not started; when nothing else
can run, the run is held (see ``app.run``).

How it knows that nothing is left: ``_busy`` counts everything under way that will lead to something by itself, that is
calls, pauses and steps of blocks, but not a block that waits for a node inside it. When it falls to zero and the
execution has not ended, only a waiting node can be the reason, and the run can be put aside.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from enum import Enum, auto, unique
from typing import Any, Final, Protocol

from pyoco_server.app.execution import Execution, FollowUps
from pyoco_server.app.ports import UnavailableError
from pyoco_server.core import (
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
from pyoco_server.core.payloads import (
    ExecutionCancelRequested,
    NodeCanceled,
    NodeFailed,
    NodeStarted,
    NodeSucceeded,
)
from pyoco_server.core.wire import JsonObject
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)


@unique
class Rest(Enum):
    """Why a driver stopped driving."""

    ENDED = auto()
    PARKED = auto()
    """Nothing runs and nothing can, until somebody resumes a waiting node."""
    HELD = auto()
    """Nothing runs and nothing can, since this process lacks the code of the nodes that are next."""
    TAKEN_OVER = auto()
    """Somebody else goes on with the run: they began a node of it."""


LETTING_GO_SEC: Final = 0.5
"""How long calls given up on may take to notice."""


class NodeWork(Protocol):
    """What is done about single nodes."""

    worker_id: str

    def knows(self, node_id: str) -> bool:
        """Is the node one of the flow's, so that there is something to do about it?"""
        ...

    def lacks(self, node_id: str) -> str | None:
        """Return the name of the code that starting the node needs and this process does not have."""
        ...

    @property
    def must_prepare(self) -> bool:
        """Is there anything to make up for?"""
        ...

    async def prepare(self) -> None:
        """Make up for what a predecessor had only in memory."""
        ...

    async def perform(self, node_id: str) -> None:
        """See the attempt through that this process has just begun."""
        ...

    async def run(self, node_id: str) -> None:
        """Begin the node's next attempt and see it through."""
        ...

    async def retry(self, node_id: str) -> None:
        """The same, after the pause its policy asks for."""
        ...

    async def wake(self, node_id: str, given: JsonObject) -> None:
        """Go on with a node that waited."""
        ...

    def ask_to_stop(self, node_id: str) -> bool:
        """Ask whoever is at work on the node to stop; False if nobody is, in this process."""
        ...

    def make_stop(self) -> None:
        """Give up on everything at work."""
        ...

    async def confirm_stopped(self, node_id: str) -> None:
        """Record that nobody is at work on the node."""
        ...


class Driver:
    """Drives one execution; use once."""

    def __init__(self, execution: Execution, *, follow_ups: FollowUps, grace_sec: float) -> None:
        self.execution = execution
        self._follow_ups = follow_ups
        self._grace_sec = grace_sec
        self._work: NodeWork | None = None
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Future[None]] = {}
        self._grace: asyncio.Task[None] | None = None
        self._busy = 0
        self._at_rest = asyncio.Event()
        self._cancel_asked = asyncio.Event()
        self._crash: BaseException | None = None
        self._taken_over = False

    @property
    def state(self) -> ExecutionState:
        """The execution's newest known state."""
        return self.execution.state

    async def drive(self, work: NodeWork, begun: Collection[str] = ()) -> Rest:
        """Go on from where the log stands; returns when there is nothing left to do, for good or for now.

        ``begun`` are nodes this process has begun and not performed yet.
        """
        self._work = work
        await self._prepare(work)
        self.execution.subscribe(self._on_commit)
        self.execution.follow_ups = self._follow_ups
        try:
            for node in sorted(self.state.live_nodes(), key=lambda live: live.node_id):
                if node.node_id in begun:
                    self._perform(node)
                self._revive(node)
                if self.state.is_cancel_requested and node.is_at_work:
                    self._interrupt(node.node_id)  # whoever was at work on it is not here any more
            self._check_rest()
            await self._at_rest.wait()
        finally:
            self.execution.follow_ups = None
            self.execution.unsubscribe(self._on_commit)
            await self._let_go()
        if self._crash is not None:
            raise self._crash
        if self.state.is_terminal:
            return Rest.ENDED
        return Rest.TAKEN_OVER if self._taken_over else Rest.PARKED

    async def _prepare(self, work: NodeWork) -> None:
        """Nothing is begun meanwhile. Preparing may take as long as tasks do: a cancel does not wait for it."""
        if not work.must_prepare or self.state.is_cancel_requested:
            return
        self.execution.subscribe(self._on_commit_while_preparing)
        self._busy += 1
        preparing = asyncio.create_task(work.prepare(), name=f"{self.execution.execution_id} prepare")
        cancelled = asyncio.create_task(self._cancel_asked.wait(), name=f"{self.execution.execution_id} cancel")
        try:
            await asyncio.wait({preparing, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
            preparing.cancel()
            await asyncio.wait({preparing}, timeout=LETTING_GO_SEC)
            self.execution.unsubscribe(self._on_commit_while_preparing)
            self._busy -= 1
        if preparing.done() and not preparing.cancelled():
            preparing.result()

    # --- For blocks: nodes inside nodes ------------------------------------------------------------------------------

    async def end_of(self, node_id: str) -> NodeState:
        """Wait for a node to end; whoever waits is not busy meanwhile."""
        node = self.state.nodes[node_id]
        if node.is_terminal:
            return node
        self._revive(node)
        end = self._ends.setdefault(node_id, asyncio.get_running_loop().create_future())
        self._busy -= 1
        self._check_rest()
        await end  # whoever announces the end counts us as busy again, so that nobody thinks all is quiet in between
        return self.state.nodes[node_id]

    async def together(
        self, bodies: Sequence[Callable[[], Awaitable[None]]], on_failure: Callable[[], Awaitable[None]]
    ) -> None:
        """Run several at once, and raise the error that came first when all have come to rest.

        Our own place among the busy goes to one of them, and the last to finish gives it back: in between, whoever has
        nothing to do but wait is not counted.
        """
        left = len(bodies)
        first: list[Exception] = []
        self._busy += left - 1

        async def one(body: Callable[[], Awaitable[None]]) -> None:
            nonlocal left
            try:
                await body()
            except UnavailableError:  # nobody's failure: this process cannot go on, and that is not being at rest
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

    def _on_commit_while_preparing(self, events: Sequence[Event], _: ExecutionState) -> None:
        if any(isinstance(event.payload, ExecutionCancelRequested) for event in events):
            self._cancel_asked.set()

    # --- Reactions ---------------------------------------------------------------------------------------------------

    def _on_commit(self, events: Sequence[Event], state: ExecutionState) -> None:
        work = self._the_work()
        begun = [payload for event in events if type(payload := event.payload) is NodeStarted]
        if any(start.worker_id is not None and start.worker_id != work.worker_id for start in begun):
            self._taken_over = True
            self._at_rest.set()  # first: what follows from their events is theirs to do
            self.execution.follow_ups = None  # also what follows from ours, should we be about to write
        self._heed(effects(events, state))
        for start in begun:
            if start.worker_id == work.worker_id:
                self._perform(state.nodes[start.node_id])
        if self._ends:
            for event in events:
                if isinstance(event.payload, NodeSucceeded | NodeFailed | NodeCanceled):
                    self._announce(event.payload.node_id)

    def _heed(self, asked: Iterable[Effect]) -> None:
        work = self._the_work()
        for effect in asked:
            match effect:
                case RunNode(node_id=node_id):
                    self._start(node_id, work.run)
                case RetryNode(node_id=node_id):
                    self._start(node_id, work.retry)
                case WakeNode(node_id=node_id, input=given):
                    self._spawn(node_id, work.wake(node_id, given))
                case InterruptNode(node_id=node_id):
                    self._interrupt(node_id)
                case EndExecution():  # last of a closed set
                    self._at_rest.set()

    def _perform(self, node: NodeState) -> None:
        """See a node through that a commit of ours has begun, unless whoever wrote the commit is about to.

        If we hear of our commit late, others may have begun the node anew behind it: then it is theirs.
        """
        work = self._the_work()
        if node.is_at_work and node.worker_id == work.worker_id and (node.node_id, "run") not in self._running:
            self._spawn(node.node_id, work.perform(node.node_id))

    def _announce(self, node_id: str) -> None:
        end = self._ends.pop(node_id, None)
        if end is not None and not end.done():
            self._busy += 1
            end.set_result(None)

    def _revive(self, node: NodeState) -> None:
        """Take up a node another process left where it is; a node this one is busy with is left alone."""
        work = self._the_work()
        if (node.node_id, "run") in self._running or self.state.is_cancel_requested:
            return
        if node.is_at_work and node.resumption is not None:
            self._spawn(node.node_id, work.wake(node.node_id, node.resumption))
        elif node.status is NodeStatus.READY or node.is_at_work:
            self._start(node.node_id, work.run)
        elif node.status is NodeStatus.RUNNING:
            self._start(node.node_id, work.retry)

    def _interrupt(self, node_id: str) -> None:
        work = self._the_work()
        if not work.ask_to_stop(node_id):
            self._spawn(node_id, work.confirm_stopped(node_id), kind="stop")
        self._begin_grace()

    def _begin_grace(self) -> None:
        if self._grace is None:
            self._busy += 1  # a cancel comes to an end by itself: nobody has to be waited for
            self._grace = asyncio.create_task(self._end_of_grace(), name=f"{self.execution.execution_id} grace")
            self._grace.add_done_callback(lambda done: self._finished(("", "grace"), done))

    async def _end_of_grace(self) -> None:
        """Those who were asked to stop have had their time: the run ends cancelled, with or without them."""
        await self.execution.clock.sleep(self._grace_sec)
        log_error(
            _log,
            "ERR-PYOCO-0021",
            action="cancel_grace_over",
            level=logging.WARNING,
            reason=f"not ended within {self._grace_sec} s of the request: what is still at work is given up on",
            run_id=self.execution.execution_id,
        )
        self._the_work().make_stop()
        await self.execution.decide(self.execution.ended_now)

    # --- Tasks of this process ---------------------------------------------------------------------------------------

    def _start(self, node_id: str, begin: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Start a node, unless its code is missing: then it stays as it is, and the others continue."""
        if self._the_work().lacks(node_id) is None:
            self._spawn(node_id, begin(node_id))

    def _spawn(self, node_id: str, work: Coroutine[Any, Any, None], *, kind: str = "run") -> None:
        if not self._the_work().knows(node_id) or self._at_rest.is_set():
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

    async def _let_go(self) -> None:
        self._the_work().make_stop()
        under_way = [*self._running.values(), *([self._grace] if self._grace else [])]
        left = [task for task in under_way if not task.done()]  # the one that wrote the end is, as a rule
        for task in left:
            task.cancel()
        if left:  # a coroutine that will not be cancelled is left to itself: the run does not wait for it
            await asyncio.wait(left, timeout=LETTING_GO_SEC)
        for task in under_way:
            if task.done() and not task.cancelled():  # whoever is told when they end may not have been yet
                self._crash = self._crash or task.exception()
        if all(task.done() for task in left):
            self._work = None  # it holds us, too: nothing is to be left for the garbage collector

    def _the_work(self) -> NodeWork:
        if self._work is None:
            raise RuntimeError("nothing to do before drive() was called")
        return self._work

"""Whoever comes late looks at the log: one look tells all attempts, and a look that is old by then tells nothing."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typing_extensions import override

from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.workshop import LocalWorkshop
from pyoco_server.app.execution import Execution
from pyoco_server.app.fencing import Fence, Fencing, TooLateError
from pyoco_server.core import Actor, ActorKind, Event
from pyoco_server.core.commands import CreateExecution, StartExecution, StartNode
from pyoco_server.flows.model import Isolation
from tests.build import EXECUTION, T0, graph
from tests.waiting import wait_until

ME = Actor(ActorKind.SYSTEM, "w1")
MANY = 40
NODES = [f"n{number}" for number in range(MANY)]
FAN = graph(
    f"s:Start f:Fork {' '.join(NODES)} j:Join z:Success",
    "s>f j>z " + " ".join(f"f>{node} {node}>j" for node in NODES),
)


class CountingLog(MemoryEventLog):
    """Counts how often it is read; ``behind`` is done when somebody has read it, and has not seen yet what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.behind: Callable[[], None] = lambda: None

    @override
    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        self.reads += 1
        await asyncio.sleep(0)  # as long as others need to ask for the same
        found = await super().read(execution_id, after=after)
        self.behind()
        return found


class Hands:
    """A clock whose hands are moved by the test; ``jumps`` when a thread other than the loop's looks at it."""

    def __init__(self) -> None:
        self.time = T0
        self.jumps = timedelta()

    def now(self) -> datetime:
        if self.jumps and threading.current_thread() is not threading.main_thread():
            self.time, self.jumps = self.time + self.jumps, timedelta()
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits {seconds} s here")


class Late:
    """An execution whose nodes a worker has begun, and then it was away for two seconds."""

    def __init__(self) -> None:
        self.log = CountingLog()
        self.clock = Hands()
        self.mine = self.execution()
        self.fencing = Fencing(self.mine, "w1", late_sec=1.0)
        self.called: list[str] = []

    def execution(self) -> Execution:
        return Execution(EXECUTION, FAN, log=self.log, clock=self.clock, new_id=uuid_maker())

    async def begin(self) -> None:
        await self.mine.do(CreateExecution(execution_id=EXECUTION, actor=ME, graph_id=FAN.graph_id))
        await self.mine.do(StartExecution(execution_id=EXECUTION, actor=ME))
        for node in NODES:
            await self.mine.do(StartNode(execution_id=EXECUTION, actor=ME, node_id=node, worker_id="w1"))
        self.be_away(2)
        self.log.reads = 0

    def be_away(self, seconds: float) -> None:
        self.clock.time += timedelta(seconds=seconds)

    async def take_over(self, node: str) -> None:
        """What another worker does when the job is delivered to it."""
        other = self.execution()
        await other.load()
        taken = StartNode(execution_id=EXECUTION, actor=ME, node_id=node, attempt=2, worker_id="w2")
        await other.do(taken, observed=True)

    async def call(self, node: str, workshop: LocalWorkshop, *, in_thread: bool) -> Fence:
        fence = Fence(workshop, self.fencing, node)

        def called() -> None:
            self.called.append(node)

        async def awaited() -> None:
            called()

        function = called if in_thread else awaited
        try:
            await fence.call(function, {}, isolation=Isolation.THREAD)
        except TooLateError:
            assert fence.problem is not None
        return fence


@pytest.mark.parametrize("in_thread", [False, True])
def test_one_looks_for_all(in_thread: bool) -> None:
    async def body() -> None:
        late, workshop = Late(), LocalWorkshop(threads=4, processes=1)
        await late.begin()
        fences = await asyncio.gather(*(late.call(node, workshop, in_thread=in_thread) for node in NODES))
        assert sorted(late.called) == sorted(NODES)
        assert [fence.problem for fence in fences] == [None] * MANY
        assert late.log.reads == 1
        await workshop.close()

    asyncio.run(body())


def test_a_look_for_all_finds_the_one_that_was_taken_over() -> None:
    async def body() -> None:
        late, workshop = Late(), LocalWorkshop(threads=4, processes=1)
        await late.begin()
        await late.take_over("n7")
        late.log.reads = 0
        fences = await asyncio.gather(*(late.call(node, workshop, in_thread=False) for node in NODES))
        assert sorted(late.called) == sorted({*NODES} - {"n7"})
        assert [fence.problem is not None for fence in fences] == [node == "n7" for node in NODES]
        await workshop.close()

    asyncio.run(body())


@pytest.mark.parametrize("in_thread", [False, True])
def test_who_was_away_while_they_looked_looks_again(in_thread: bool) -> None:
    async def body() -> None:
        late, workshop = Late(), LocalWorkshop(threads=1, processes=1)
        await late.begin()
        pauses = iter([60, 60])
        late.log.behind = lambda: late.be_away(next(pauses, 0))
        assert (await late.call("n0", workshop, in_thread=in_thread)).problem is None
        assert late.called == ["n0"]
        assert late.log.reads == 3
        await workshop.close()

    asyncio.run(body())


def test_who_was_away_between_the_look_and_the_call_looks_again() -> None:
    """The event loop has looked for the thread, and the thread goes on only when the process is awake again."""

    async def body() -> None:
        late, workshop = Late(), LocalWorkshop(threads=1, processes=1)
        await late.begin()
        fence = Fence(workshop, late.fencing, "n0")

        async def look_and_be_taken_from(look: Callable[[], Awaitable[None]] = late.fencing.look) -> None:
            await look()
            if not late.clock.jumps:
                await late.take_over("n0")
                late.clock.jumps = timedelta(seconds=60)

        late.fencing.look = look_and_be_taken_from  # type: ignore[method-assign]  # the real one, and what comes next
        with pytest.raises(TooLateError):
            await fence.call(lambda: late.called.append("n0"), {}, isolation=Isolation.THREAD)
        assert late.called == []
        assert isinstance(fence.problem, TooLateError)
        await workshop.close()

    asyncio.run(body())


def test_where_every_look_takes_long_a_look_may_be_older_in_the_end() -> None:
    async def body() -> None:
        late, workshop = Late(), LocalWorkshop(threads=1, processes=1)
        await late.begin()
        late.log.behind = lambda: late.be_away(5)
        assert (await late.call("n0", workshop, in_thread=True)).problem is None
        assert late.called == ["n0"]
        assert 3 < late.log.reads < 12
        await workshop.close()

    asyncio.run(body())


def _note(path: str, seconds: float = 0.0) -> None:
    """Called in another process."""
    Path(path).touch()
    time.sleep(seconds)


def test_who_waited_for_a_process_looks_when_there_is_one(tmp_path: Path) -> None:
    """A look from before the wait would say nothing: whoever takes over does so meanwhile."""

    async def body() -> None:
        late, workshop = Late(), LocalWorkshop(threads=1, processes=1)
        await late.begin()
        other, mine = tmp_path / "other", tmp_path / "mine"
        busy = asyncio.create_task(
            workshop.call(_note, {"path": str(other), "seconds": 0.2}, isolation=Isolation.PROCESS)
        )
        await wait_until(other.exists, timeout=30.0)
        fence = Fence(workshop, late.fencing, "n0")
        waiting = asyncio.create_task(fence.call(_note, {"path": str(mine)}, isolation=Isolation.PROCESS))
        await wait_until(lambda: workshop._processes.waiting == 1)
        await late.take_over("n0")
        await busy
        with pytest.raises(TooLateError):
            await waiting
        assert not mine.exists()
        fence = Fence(workshop, late.fencing, "n1")
        await fence.call(_note, {"path": str(mine)}, isolation=Isolation.PROCESS)
        assert mine.exists()
        await workshop.close()

    asyncio.run(body())

"""A late process reads the log before it starts tasks: one read serves all attempts, an outdated one does not."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typing_extensions import override

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.system import uuid_maker
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.start_fence import FencedExecutor, StartFence, TooLateError
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
    """Counts how often it is read; ``behind`` is called after a read, before the reader gets its result."""

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
    """A clock that the test sets; ``jumps`` are added when a thread other than the loop's reads it."""

    def __init__(self) -> None:
        self.time = T0
        self.jumps = timedelta()

    def now(self) -> datetime:
        if self.jumps and threading.current_thread() is not threading.main_thread():
            self.time, self.jumps = self.time + self.jumps, timedelta()
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"unexpected wait of {seconds} s")


class Late:
    """An execution whose nodes a worker has begun, and then it was away for two seconds."""

    def __init__(self) -> None:
        self.log = CountingLog()
        self.clock = Hands()
        self.mine = self.execution()
        self.fencing = StartFence(self.mine, "w1", late_sec=1.0)
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

    async def call(self, node: str, executor: LocalExecutor, *, in_thread: bool) -> FencedExecutor:
        fence = FencedExecutor(executor, self.fencing, node)

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
def test_one_read_serves_all_attempts(in_thread: bool) -> None:
    async def body() -> None:
        late, executor = Late(), LocalExecutor(threads=4, processes=1)
        await late.begin()
        fences = await asyncio.gather(*(late.call(node, executor, in_thread=in_thread) for node in NODES))
        assert sorted(late.called) == sorted(NODES)
        assert [fence.problem for fence in fences] == [None] * MANY
        assert late.log.reads == 1
        await executor.close()

    asyncio.run(body())


def test_a_shared_read_finds_the_attempt_that_was_taken_over() -> None:
    async def body() -> None:
        late, executor = Late(), LocalExecutor(threads=4, processes=1)
        await late.begin()
        await late.take_over("n7")
        late.log.reads = 0
        fences = await asyncio.gather(*(late.call(node, executor, in_thread=False) for node in NODES))
        assert sorted(late.called) == sorted({*NODES} - {"n7"})
        assert [fence.problem is not None for fence in fences] == [node == "n7" for node in NODES]
        await executor.close()

    asyncio.run(body())


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_process_paused_during_the_read_reads_again(in_thread: bool) -> None:
    async def body() -> None:
        late, executor = Late(), LocalExecutor(threads=1, processes=1)
        await late.begin()
        pauses = iter([60, 60])
        late.log.behind = lambda: late.be_away(next(pauses, 0))
        assert (await late.call("n0", executor, in_thread=in_thread)).problem is None
        assert late.called == ["n0"]
        assert late.log.reads == 3
        await executor.close()

    asyncio.run(body())


def test_a_process_paused_between_the_read_and_the_call_reads_again() -> None:
    """The event loop has read for the thread, and the thread continues only after the pause of the process."""

    async def body() -> None:
        late, executor = Late(), LocalExecutor(threads=1, processes=1)
        await late.begin()
        fence = FencedExecutor(executor, late.fencing, "n0")

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
        await executor.close()

    asyncio.run(body())


def test_when_every_read_is_slow_an_older_one_is_accepted_in_the_end() -> None:
    async def body() -> None:
        late, executor = Late(), LocalExecutor(threads=1, processes=1)
        await late.begin()
        late.log.behind = lambda: late.be_away(5)
        assert (await late.call("n0", executor, in_thread=True)).problem is None
        assert late.called == ["n0"]
        assert 3 < late.log.reads < 12
        await executor.close()

    asyncio.run(body())


def _note(path: str, seconds: float = 0.0) -> None:
    """Called in another process."""
    Path(path).touch()
    time.sleep(seconds)


def test_a_task_that_waited_for_a_process_reads_the_log_when_it_gets_one(tmp_path: Path) -> None:
    """A read from before the wait would be outdated: another process can take over during the wait."""

    async def body() -> None:
        late, executor = Late(), LocalExecutor(threads=1, processes=1)
        await late.begin()
        other, mine = tmp_path / "other", tmp_path / "mine"
        busy = asyncio.create_task(
            executor.call(_note, {"path": str(other), "seconds": 0.2}, isolation=Isolation.PROCESS)
        )
        await wait_until(other.exists)
        fence = FencedExecutor(executor, late.fencing, "n0")
        waiting = asyncio.create_task(fence.call(_note, {"path": str(mine)}, isolation=Isolation.PROCESS))
        await wait_until(lambda: executor._processes.waiting == 1)
        await late.take_over("n0")
        await busy
        with pytest.raises(TooLateError):
            await waiting
        assert not mine.exists()
        fence = FencedExecutor(executor, late.fencing, "n1")
        await fence.call(_note, {"path": str(mine)}, isolation=Isolation.PROCESS)
        assert mine.exists()
        await executor.close()

    asyncio.run(body())

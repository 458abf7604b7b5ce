"""When many attempts come late at once, one look at the log tells all of them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

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

ME = Actor(ActorKind.SYSTEM, "w1")
MANY = 40
NODES = [f"n{number}" for number in range(MANY)]
FAN = graph(
    f"s:Start f:Fork {' '.join(NODES)} j:Join z:Success",
    "s>f j>z " + " ".join(f"f>{node} {node}>j" for node in NODES),
)


class CountingLog(MemoryEventLog):
    """Counts how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    @override
    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        self.reads += 1
        await asyncio.sleep(0)  # as long as others need to ask for the same
        return await super().read(execution_id, after=after)


class Hands:
    """A clock whose hands are moved by the test."""

    def __init__(self) -> None:
        self.time = T0

    def now(self) -> datetime:
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
        self.clock.time += timedelta(seconds=2)
        self.log.reads = 0

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
        other = late.execution()
        await other.load()
        taken = StartNode(execution_id=EXECUTION, actor=ME, node_id="n7", attempt=2, worker_id="w2")
        await other.do(taken, observed=True)
        late.log.reads = 0
        fences = await asyncio.gather(*(late.call(node, workshop, in_thread=False) for node in NODES))
        assert sorted(late.called) == sorted({*NODES} - {"n7"})
        assert [fence.problem is not None for fence in fences] == [node == "n7" for node in NODES]
        await workshop.close()

    asyncio.run(body())

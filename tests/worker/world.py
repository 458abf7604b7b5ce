"""A platform in memory with workers on it: real use cases on ports whose faults a test plans.

Time is virtual where a test wants it: then hours of ack waits, pauses and graces take none, and no time passes while a
task is at work.
"""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.memory.registries import MemoryGraphRegistry, MemoryOutputStore
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.ports import LOG_STATUS, Delivery, TaskExecutor, head_of
from pyoco_server.app.runs.commands import RunCommands, Sender
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.runs.submit import Submission, Submitter
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.plan_cache import PlanCache
from pyoco_server.app.runtime.run import RunServices
from pyoco_server.app.snapshots.projection import worker_mark
from pyoco_server.core import Actor, ActorKind, Event, ExecutionState, fold
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.flows.limits import NO_LIMITS
from pyoco_server.testing import VirtualClock
from pyoco_server.testing.counting_executor import CountingExecutor
from pyoco_server.worker.flow_source import FlowSource, Resolver
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.options import WorkerOptions
from pyoco_server.worker.quarantined_job import recognised
from pyoco_server.worker.registration import WorkerRegistration
from pyoco_server.worker.settlement import Settlement, Settler
from pyoco_server.worker.worker import CodeSync, Worker
from tests.waiting import PATIENCE_SEC
from tests.worker.faulty import FaultyLetters, FaultyLog, FaultyQueue, FaultyRegistry, FaultySnapshots, Trouble

R = TypeVar("R")
Flows = Mapping[str, Flow] | Resolver

USER = Actor(ActorKind.USER, "ann")
PAUSE_SEC = 0.5
"""How long a worker waits between the commit that takes a node over and its call."""


ALLOWED = ("tests", "code_of_a_deploy")
"""What these workers call for a flow.yaml."""


class World:
    """All stores of the platform, and the use cases on them."""

    def __init__(self, *, virtual: bool = True, ack_wait_sec: float = 30.0, max_deliver: int = 20) -> None:
        self.clock = VirtualClock() if virtual else SystemClock()
        self.trouble = Trouble()
        self.log = FaultyLog(self.trouble)
        self.snapshots = FaultySnapshots(self.trouble)
        self.queue = FaultyQueue(
            MemoryWorkQueue(self.clock, ack_wait_sec=ack_wait_sec, max_deliver=max_deliver), self.trouble
        )
        self.letters = FaultyLetters(self.trouble)
        self.registry = FaultyRegistry(self.trouble)
        self.outputs = MemoryOutputStore()
        self.new_id = uuid_maker()
        shared: dict[str, Any] = {
            "log": self.log,
            "snapshots": self.snapshots,
            "queue": self.queue,
            "clock": self.clock,
            "new_id": self.new_id,
            "max_snapshot_bytes": 262_144,
        }
        self.submitter = Submitter(**shared)
        self.run_log = RunLog(**shared)
        self.commands = RunCommands(self.run_log, MemoryGraphRegistry())
        self._folder = tempfile.TemporaryDirectory(prefix="pyoco-worker-tests-")
        self._executors: list[TaskExecutor] = []

    async def close(self) -> None:
        for executor in self._executors:
            await executor.close()
        self._folder.cleanup()

    # --- Doing -------------------------------------------------------------------------------------------------------

    async def submit(
        self, flow_name: str, params: Mapping[str, Any] | None = None, *, run_id: str | None = None, **fields: Any
    ) -> str:
        """Submit a run and return its id."""
        snapshot = await self.submitter.submit(
            Submission(flow_name=flow_name, params=dict(params or {}), **fields), USER, run_id=run_id
        )
        return str(snapshot["run_id"])

    async def cancel(self, run_id: str, actor: Actor = USER, reason: str | None = None) -> JsonObject:
        """Cancel a run and return the answer."""
        return await self.commands.cancel(run_id, Sender(actor=actor), reason)

    async def resume(
        self, run_id: str, node_id: str, value: object, actor: Actor = USER, *, key: str | None = None
    ) -> JsonObject:
        """Resume a wait, with its resume key or without, and return the answer."""
        result = await self.commands.resume(run_id, node_id, value, Sender(actor=actor), resume_key=key)
        return result.snapshot()

    async def archive(self, run_id: str, actor: Actor = USER) -> JsonObject:
        """Archive a run and return the answer."""
        return (await self.commands.archive(run_id, Sender(actor=actor))).snapshot()

    async def publish(self, body: bytes | Mapping[str, Any], *, tag: str = "default") -> None:
        """Queue a job with any body."""
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        await self.queue.inner.publish(tag, encoded, dedup_id=self.new_id())

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, also past work that does not end."""
        assert isinstance(self.clock, VirtualClock)
        self.clock.attach()
        await asyncio.to_thread(self.clock.advance, seconds, overtake=True)

    limits = NO_LIMITS
    """Of each run that workers made from now on drive."""

    def hand(
        self, flows: Flows, worker_id: str = "w1", *, wheels: Mapping[str, str] | None = None, **options: Any
    ) -> "Hand":
        """A worker without its loops; ``wheels``: those it has in use."""
        return Hand(self, flows, WorkerOptions(worker_id=worker_id, **options), wheels or {})

    def services(self, mark: str, options: WorkerOptions, wheels: Mapping[str, str]) -> RunServices:
        executor: TaskExecutor = LocalExecutor(threads=8, processes=1)
        if isinstance(self.clock, VirtualClock):
            executor = CountingExecutor(executor, self.clock)
        self._executors.append(executor)
        return RunServices(
            log=self.log,
            clock=self.clock,
            new_id=self.new_id,
            executor=executor,
            outputs=Outputs(self.outputs, key=b"of all workers in these tests, as it is"),
            plans=PlanCache(),
            artifacts=Path(self._folder.name),
            worker_mark=mark,
            grace_sec=options.cancel_grace_sec,
            chance=random.Random(0),
            wheels=wheels,
            isolation=options.isolation,
            limits=self.limits,
        )

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def events(self, run_id: str) -> Sequence[Event]:
        """The log, without faults."""
        return (await self.log.inner.read(run_id))[0]

    async def types(self, run_id: str) -> list[str]:
        return [event.type.value for event in await self.events(run_id)]

    async def state(self, run_id: str) -> ExecutionState:
        return fold(await self.events(run_id))

    async def stored(self, run_id: str) -> dict[str, Any]:
        """The stored snapshot as the projection made it, without faults; empty if there is none."""
        found = await self.snapshots.inner.read(run_id)
        if found is None:
            return {}
        said: dict[str, Any] = msgspec.json.decode(found.body)
        assert said.pop(LOG_STATUS, said.get("status")) == said.get("status") or head_of(found.body).is_foreign
        return said

    async def dead(self) -> list[dict[str, Any]]:
        """All dead letters, oldest first."""
        return [letter.entry for letter in reversed(await self.letters.newest(100))]


class Hand:
    """A worker without its loops: handles one job at a time, when a test calls it."""

    def __init__(self, world: World, flows: Flows, options: WorkerOptions, wheels: Mapping[str, str]) -> None:
        self.world = world
        self.options = options
        self.instance_id = world.new_id()
        self.registration = WorkerRegistration(
            world.registry,
            world.clock,
            worker_id=options.worker_id,
            instance_id=self.instance_id,
            tags=options.tags,
            interval_sec=options.worker_heartbeat_interval_sec,
        )
        self.handler = JobHandler(
            log=world.log,
            snapshots=world.snapshots,
            services=world.services(worker_mark(options.worker_id, self.instance_id), options, wheels),
            flows=FlowSource(flows.__getitem__ if isinstance(flows, Mapping) else flows, CallablePolicy(ALLOWED)),
            registration=self.registration,
            options=options,
        )
        self.settler = Settler(world.letters, world.queue, options.worker_id)

    def worker(self, code_sync: CodeSync | None = None) -> Worker:
        """The whole worker."""
        return Worker(
            queue=self.world.queue,
            registration=self.registration,
            dead_letters=self.world.letters,
            handler=self.handler,
            clock=self.world.clock,
            options=self.options,
            code_sync=code_sync,
        )

    async def pull(self, tag: str = "default") -> Delivery:
        """The next job, however long it takes to come."""
        delivery = await self.world.queue.pull(tag, timeout_sec=10_000)
        assert delivery is not None, "no job came"
        return delivery

    async def handle(self, delivery: Delivery) -> Settlement:
        """Handle a job to its end, and settle it."""
        handled = await self.handler.handle(recognised(delivery, self.world.queue))
        await self.settler.settle(handled.delivery, handled.settlement, self.world.clock.now().timestamp())
        return handled.settlement

    async def work(self, tag: str = "default") -> Settlement:
        """Pull a job, handle it to its end, and settle it."""
        return await self.handle(await self.pull(tag))


def attempt(
    body: Callable[[World], Awaitable[R]],
    *,
    virtual: bool = True,
    ack_wait_sec: float = 30.0,
    max_deliver: int = 20,
) -> R:
    """Run a test's body in a world of its own."""

    async def within_patience() -> R:
        world = World(virtual=virtual, ack_wait_sec=ack_wait_sec, max_deliver=max_deliver)
        try:
            async with asyncio.timeout(PATIENCE_SEC):
                return await body(world)
        finally:
            await world.close()

    return asyncio.run(within_patience())


class Held:
    """A task that runs until it is released, and counts how often it began."""

    def __init__(self, name: str = "held") -> None:
        self.began = 0
        self.stopped = 0
        self.name = name
        self._released = asyncio.Event()
        self._began = asyncio.Event()

    def task(self) -> TaskWrapper:
        return TaskWrapper(Task(func=self._run, name=self.name))

    async def at_work(self) -> None:
        """Wait until it has begun."""
        await self._began.wait()
        self._began.clear()

    def release(self) -> None:
        self._released.set()

    async def _run(self) -> str:
        self.began += 1
        self._began.set()
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return self.name

"""Gateways and workers, built as in production on simulated ports; each is one simulated process."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.memory.listing import MemoryListing
from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.adapters.system import uuid_maker
from pyoco_server.app.ports import Clock, SnapshotChange, UnavailableError, head_of
from pyoco_server.app.recovery.announced_flows import announced
from pyoco_server.app.recovery.exhausted_jobs import ExhaustedJobSweep
from pyoco_server.app.recovery.foreign_writes import ForeignWrites
from pyoco_server.app.recovery.held_runs import HeldRuns
from pyoco_server.app.recovery.rebuild import Rebuild
from pyoco_server.app.recovery.reconciler import Reconciler, ReconcilerOptions
from pyoco_server.app.runs.commands import RunCommands
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.runs.submit import IdempotentSubmitter, Submitter
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.plan_cache import PlanCache
from pyoco_server.app.runtime.run import RunServices
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.app.snapshots.projection import worker_mark
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.gateway.live.snapshot_hub import SnapshotHub
from pyoco_server.worker.flow_source import Flows, FlowSource
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.options import WorkerOptions
from pyoco_server.worker.registration import WorkerRegistration
from pyoco_server.worker.worker import Worker
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop
from tests.sim.network import Network
from tests.sim.ports import SimFeed, SimLog, SimQueue, SimSnapshots
from tests.worker.faulty import FaultyExhaustedJobs, FaultyGraphs, FaultyLetters, FaultyOutputs, FaultyRegistry

ACK_WAIT_SEC: Final = 3.0
GRACE_SEC: Final = 2.0
MAX_SNAPSHOT_BYTES: Final = 262_144
WORKER: Final = WorkerOptions(
    concurrency=2,
    poll_timeout_sec=4.0,
    run_heartbeat_interval_sec=1.0,
    worker_heartbeat_interval_sec=8.0,
    ack_progress_interval_sec=1.0,
    cancel_grace_sec=GRACE_SEC,
    stop_timeout_sec=1.0,
)
SWEEPS: Final = ReconcilerOptions(
    interval_sec=2.0,
    cancel_grace_sec=GRACE_SEC,
    cancel_margin_sec=1.0,
    snapshot_sec=2.0,
    audit_sec=4.0,
    silent_sec=4 * ACK_WAIT_SEC,
)
REBUILD_PAUSE_SEC: Final = 30.0


class Store:
    """All stores of a world, behind ports that the network delays and breaks."""

    def __init__(self, loop: SimLoop, network: Network, chance: random.Random, *, max_deliver: int) -> None:
        self.log = SimLog(network)
        self.snapshots = SimSnapshots(network)
        self.feed = MemorySnapshotFeed(self.snapshots.inner)
        queue = MemoryWorkQueue(SimClock(loop), ack_wait_sec=ACK_WAIT_SEC, max_deliver=max_deliver)
        self.queue = SimQueue(network, loop, queue, chance)
        self.letters = FaultyLetters(network)
        self.registry = FaultyRegistry(network)
        self.outputs = FaultyOutputs(network)
        self.graphs = FaultyGraphs(network)

    def desk_parts(self, clock: Clock, chance: random.Random) -> dict[str, Any]:
        """Return the arguments that the use cases of a gateway have in common."""
        return {
            "log": self.log,
            "snapshots": self.snapshots,
            "queue": self.queue,
            "clock": clock,
            "new_id": uuid_maker(chance),
            "max_snapshot_bytes": MAX_SNAPSHOT_BYTES,
        }


class Gateway:
    """One life of a gateway; its index survives it, like a file."""

    def __init__(
        self, loop: SimLoop, network: Network, store: Store, index: SqliteRunIndex, clock: Clock, chance: random.Random
    ) -> None:
        self.is_open = False
        self.index = index
        self.hub = SnapshotHub(store.snapshots.read, most=100, most_per_client=100)
        parts = store.desk_parts(clock, chance)
        self.run_log = RunLog(**parts)
        self.submitter = Submitter(**parts)
        self.once = IdempotentSubmitter(self.submitter, self.run_log)
        self.commands = RunCommands(self.run_log, store.graphs)
        self.snapshots = store.snapshots
        self._lagging = SnapshotLag()
        self._foreign = ForeignWrites(self.run_log)
        self._exhausted_jobs = FaultyExhaustedJobs(store.queue.inner, network)
        self._exhausted = ExhaustedJobSweep(
            jobs=self._exhausted_jobs,
            snapshots=store.snapshots,
            dead_letters=store.letters,
            run_log=self.run_log,
            queue=store.queue,
            clock=clock,
            fresh_sec=3 * WORKER.run_heartbeat_interval_sec,
        )
        self._clock = clock
        self._log = store.log
        feed = SimFeed(network, loop, store.snapshots.inner, store.feed)
        self.keeper = IndexUpdater(feed, index, self._changed, poll_sec=2.0)
        self._held = HeldRuns(
            run_log=self.run_log,
            index=index,
            workers=store.registry,
            clock=clock,
            silent_sec=SWEEPS.worker_silent_sec,
        )
        self._rebuild = Rebuild(
            run_log=self.run_log,
            index=index,
            listing=MemoryListing(store.log.inner, store.snapshots.inner, store.queue.inner),
            lagging=self._lagging,
            foreign=self._foreign,
            clock=clock,
            pause_sec=REBUILD_PAUSE_SEC,
        )
        self._sweeper = Reconciler(
            run_log=self.run_log,
            index=index,
            snapshots=store.snapshots,
            queue=store.queue,
            lagging=self._lagging,
            rebuild=self._rebuild,
            exhausted=self._exhausted,
            workers=store.registry,
            clock=clock,
            options=SWEEPS,
        )

    async def run(self, *, sweeps: bool) -> None:
        """Serve until killed."""
        while not self.keeper.is_current:
            try:
                await self.keeper.catch_up()
            except UnavailableError:
                await asyncio.sleep(0.5)
        await self._log.subscribe_all(self._appended)
        await self._exhausted_jobs.subscribe(self._exhausted.note_advisory)
        self.is_open = True
        sweeping = [self._sweeper.run(), self._rebuild.run()] if sweeps else [self._wake_held_runs()]
        await asyncio.gather(self.keeper.run(), self._foreign.run(), *sweeping)

    async def _wake_held_runs(self) -> None:
        """Wake held runs. Gateways that do not reconcile need this too, because nothing else resumes a held run."""
        while True:
            await asyncio.sleep(SWEEPS.interval_sec)
            with contextlib.suppress(UnavailableError):
                await self._held.wake()

    def _changed(self, change: SnapshotChange) -> None:
        self.hub.notify(change)
        if change.body is not None:
            head = head_of(change.body)
            self._lagging.written(change.run_id, head.log_position)
            self._foreign.changed(change, head)

    def _appended(self, run_id: str, position: int) -> None:
        self._lagging.appended(run_id, position, self._clock.now().timestamp())


def make_worker(
    store: Store, name: str, clock: Clock, chance: random.Random, flows: Mapping[str, Flow], *, announces: bool
) -> Worker:
    """Build one life of a worker; ``announces``: whether it can enumerate its flows."""
    new_id = uuid_maker(chance)
    instance_id = new_id()
    options = _named(name)
    registration = WorkerRegistration(
        store.registry,
        clock,
        worker_id=name,
        instance_id=instance_id,
        tags=options.tags,
        interval_sec=options.worker_heartbeat_interval_sec,
    )
    services = RunServices(
        log=store.log,
        clock=clock,
        new_id=new_id,
        executor=LoopExecutor(threads=1, processes=1),
        outputs=Outputs(store.outputs, key=b"of all simulated workers, or so it is"),
        plans=PlanCache(),
        artifacts=Path("artifacts"),
        worker_mark=worker_mark(name, instance_id),
        grace_sec=options.cancel_grace_sec,
        chance=chance,
    )
    if announces:
        registration.note_flows({flow_name: announced(*read_flow(flow), {}) for flow_name, flow in flows.items()})
    handler = JobHandler(
        log=store.log,
        snapshots=store.snapshots,
        services=services,
        flows=FlowSource(Flows(flows)),
        registration=registration,
        options=options,
    )
    return Worker(
        queue=store.queue,
        registration=registration,
        dead_letters=store.letters,
        handler=handler,
        clock=clock,
        options=options,
    )


class LoopExecutor(LocalExecutor):
    """Makes calls that are not of a task, such as to store a value, on the loop: they take no time in the world."""

    @override
    async def aside(self, call: Callable[[], Any]) -> Any:
        return call()


def _named(name: str) -> WorkerOptions:
    return msgspec.structs.replace(WORKER, worker_id=name)

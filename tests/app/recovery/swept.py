"""A world in memory, and gateways that sweep it."""

from collections.abc import Awaitable, Callable

import msgspec

from pyoco_server.adapters.memory.listing import MemoryListing
from pyoco_server.adapters.memory.registries import MemoryGraphRegistry
from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed
from pyoco_server.adapters.memory.work_queue import MemoryExhaustedJobs
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import SnapshotChange, head_of
from pyoco_server.app.recovery.exhausted_jobs import ExhaustedJobSweep
from pyoco_server.app.recovery.foreign_writes import ForeignWrites
from pyoco_server.app.recovery.rebuild import Rebuild
from pyoco_server.app.recovery.reconciler import Reconciler, ReconcilerOptions
from pyoco_server.app.runs.commands import RunCommands, Sender
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.core import Actor, ActorKind
from pyoco_server.core.json_codec import JsonObject
from tests.worker.world import World, attempt

OPTIONS = ReconcilerOptions(cancel_grace_sec=5.0, cancel_margin_sec=1.0, silent_sec=60.0)
GRAPH = {
    "nodes": [{"nodeId": "start", "nodeType": "Start"}, {"nodeId": "end", "nodeType": "Success"}],
    "edges": [{"from": "start", "to": "end"}],
}
CREATION: JsonObject = {"graphId": "g"}
SENDER = Sender(actor=Actor(ActorKind.USER))
Body = Callable[["Swept"], Awaitable[None]]


class Swept:
    """A world, and someone who sweeps it."""

    def __init__(self, world: World, index: SqliteRunIndex) -> None:
        self.world = world
        self.index = index
        self.lagging = SnapshotLag()
        self.foreign = ForeignWrites(world.run_log)
        self.keeper = IndexUpdater(MemorySnapshotFeed(world.snapshots.inner), index, self._changed)
        self.exhausted = self.another_exhausted_job_sweep()
        self.rebuild = self.another_rebuild()
        self.reconciler = self.another()

    def another_exhausted_job_sweep(self) -> ExhaustedJobSweep:
        """What one more gateway would see to used-up jobs with."""
        world = self.world
        return ExhaustedJobSweep(
            jobs=MemoryExhaustedJobs(world.queue.inner),
            snapshots=world.snapshots,
            dead_letters=world.letters,
            run_log=world.run_log,
            queue=world.queue,
            clock=world.clock,
            fresh_sec=3.0,
        )

    def another_rebuild(self) -> Rebuild:
        """The comparison of a gateway that has just started."""
        world = self.world
        return Rebuild(
            run_log=world.run_log,
            index=self.index,
            listing=MemoryListing(world.log.inner, world.snapshots.inner, world.queue.inner),
            lagging=self.lagging,
            foreign=self.foreign,
            clock=world.clock,
        )

    def another(self) -> Reconciler:
        """One that has just started."""
        world = self.world
        return Reconciler(
            run_log=world.run_log,
            index=self.index,
            snapshots=world.snapshots,
            queue=world.queue,
            lagging=self.lagging,
            rebuild=self.rebuild,
            exhausted=self.exhausted,
            workers=world.registry,
            clock=world.clock,
            options=OPTIONS,
        )

    def _changed(self, change: SnapshotChange) -> None:
        if change.body is not None:
            head = head_of(change.body)
            self.lagging.written(change.run_id, head.log_position)
            self.foreign.changed(change, head)

    async def sweep(self) -> None:
        """Every sweep once, with an index that is up to date."""
        await self.keeper.catch_up()
        await self.foreign.reconcile_noted()
        for sweep in self.reconciler.sweeps:
            await sweep()
        await self.keeper.catch_up()

    async def status(self, run_id: str) -> str:
        return str((await self.world.stored(run_id)).get("status"))


async def commands_on_graph(swept: Swept) -> RunCommands:
    """For executions that are driven from outside, on the graph ``CREATION`` names."""
    graphs = MemoryGraphRegistry()
    await graphs.put("g", msgspec.json.encode({"graphId": "g", **GRAPH}))
    return RunCommands(swept.world.run_log, graphs)


def sweeping(body: Body, *, max_deliver: int = 20) -> None:
    async def inside(world: World) -> None:
        async with SqliteRunIndex() as index:
            swept = Swept(world, index)
            now = world.clock.now
            leave = await world.log.subscribe_all(
                lambda run_id, position: swept.lagging.appended(run_id, position, now().timestamp())
            )
            await body(swept)
            leave()

    attempt(inside, max_deliver=max_deliver)

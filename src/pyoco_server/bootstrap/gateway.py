"""A gateway, put together."""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.jetstream.beginnings import JetStreamBeginnings
from pyoco_server.adapters.jetstream.held_jobs import JetStreamHeldJobs
from pyoco_server.adapters.jetstream.keys import JetStreamKeyStore
from pyoco_server.adapters.jetstream.liveness import JetStreamLiveness
from pyoco_server.adapters.jetstream.snapshot_feed import JetStreamSnapshotFeed
from pyoco_server.adapters.jetstream.spent_jobs import JetStreamSpentJobs
from pyoco_server.adapters.readmodel import SqliteRunIndex
from pyoco_server.app.command_desk import CommandDesk
from pyoco_server.app.dead_workers import DeadWorkers
from pyoco_server.app.foreign_writes import ForeignWrites
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.key_ring import KeyRing
from pyoco_server.app.keys import KeyDesk
from pyoco_server.app.lagging import Lagging
from pyoco_server.app.ports import SnapshotChange, head_of
from pyoco_server.app.run_desk import RunDesk
from pyoco_server.app.spent_jobs import SpentJobSweep
from pyoco_server.app.sweeping import Sweeper, SweepOptions
from pyoco_server.bootstrap.platform import Platform, names_of, open_platform, run_desk, submitter, wheel_desk
from pyoco_server.gateway.auth_exposure import check_exposure
from pyoco_server.gateway.rate_limits import KeyLimits
from pyoco_server.gateway.run_changes import RunChanges
from pyoco_server.gateway.run_ends import RunEnds
from pyoco_server.gateway.services import Services
from pyoco_server.gateway.watching import WatchHub
from pyoco_server.settings import Settings

_TOLD_AGAIN_SEC: Final = 0.25


class _Told(NamedTuple):
    """Who hears of what happens to runs."""

    hub: WatchHub
    changes: RunChanges
    ends: RunEnds
    lagging: Lagging
    foreign: ForeignWrites

    def changed(self, change: SnapshotChange) -> None:
        """A snapshot was written or removed, and the index knows."""
        self.hub.tell(change)
        self.changes.tell(change)
        self.ends.tell(change.run_id, change)
        if change.body is not None:
            head = head_of(change.body)
            self.lagging.written(change.run_id, head.log_position)
            self.foreign.changed(change, head)


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[Services]:
    """Everything a gateway serves with; its index and its sweeps run as long as this is open."""
    check_exposure(settings)
    async with (
        open_platform(settings, name="pyoco-server") as platform,
        SqliteRunIndex(_index_path(settings)) as index,
    ):
        limits = {"most": settings.http.watch_max_connections, "most_per_client": settings.http.watch_max_per_client}
        desk = run_desk(platform, settings)
        told = _Told(WatchHub(**limits), RunChanges(), RunEnds(**limits), Lagging(), ForeignWrites(desk))
        feed = JetStreamSnapshotFeed(platform.connection, names_of(settings))
        feed.listen(told.ends.tell)
        feed.listen(told.foreign.announced)
        keeper = IndexKeeper(feed, index, told.changed)
        platform.snapshots.notify(keeper.note_written)
        given = _services(settings, platform, index, keeper, told, desk)
        await platform.connection.serve_syncs()
        await keeper.catch_up()
        async with _sweeping(given, platform, told):
            yield given


def _services(
    settings: Settings, platform: Platform, index: SqliteRunIndex, keeper: IndexKeeper, told: _Told, desk: RunDesk
) -> Services:
    clock = SystemClock()
    keys = JetStreamKeyStore(platform.connection, names_of(settings))
    return Services(
        settings=settings,
        store=platform.connection,
        clock=clock,
        new_id=uuid_maker(),
        log=platform.log,
        snapshots=platform.snapshots,
        queue=platform.queue,
        workers=platform.workers,
        dead_letters=platform.dead_letters,
        graphs=platform.graphs,
        outputs=platform.outputs,
        index=index,
        keeper=keeper,
        hub=told.hub,
        changes=told.changes,
        ends=told.ends,
        submitter=submitter(platform, settings),
        desk=desk,
        commands=CommandDesk(desk, platform.graphs),
        wheels=wheel_desk(platform, settings),
        key_ring=KeyRing(keys, clock, pepper=_pepper(settings)),
        limits=KeyLimits(
            per_sec=settings.auth.rate_limit_per_sec, at_once=settings.auth.max_concurrent_requests_per_key
        ),
    )


@contextlib.asynccontextmanager
async def _sweeping(given: Services, platform: Platform, told: _Told) -> AsyncIterator[None]:
    """The index kept up to date, and everything that must happen although whoever should have done it is gone."""
    names, clock, settings = names_of(given.settings), given.clock, given.settings
    spent_jobs = JetStreamSpentJobs(platform.connection, names)
    spent = SpentJobSweep(
        jobs=spent_jobs,
        log=given.log,
        snapshots=given.snapshots,
        dead_letters=given.dead_letters,
        desk=given.desk,
        queue=given.queue,
        clock=clock,
        new_id=given.new_id,
        in_hands_sec=settings.heartbeat.in_hands_sec,
    )
    sweeper = Sweeper(
        desk=given.desk,
        index=given.index,
        snapshots=given.snapshots,
        queue=given.queue,
        lagging=told.lagging,
        beginnings=JetStreamBeginnings(platform.connection, names),
        spent=spent,
        workers=given.workers,
        foreign=told.foreign,
        clock=clock,
        chance=random.Random(),  # noqa: S311 an order, not a secret
        options=SweepOptions(
            cancel_grace_sec=settings.worker.cancel_grace_period_sec,
            worker_silent_sec=settings.heartbeat.worker_disconnect_timeout_sec,
            silent_sec=max(60.0, 3 * settings.consumer.ack_wait_sec),
        ),
    )

    def appended(run_id: str, position: int) -> None:
        told.lagging.appended(run_id, position, clock.now().timestamp())

    with contextlib.ExitStack() as subscriptions:
        subscriptions.callback(await given.log.subscribe_all(appended))
        subscriptions.callback(await spent_jobs.subscribe(spent.tell))
        loops = [given.keeper.run(), sweeper.run(), told.foreign.run()]
        if settings.heartbeat.worker_gone_sec > 0:
            liveness = JetStreamLiveness(platform.connection, names)
            dead_workers = DeadWorkers(
                liveness=liveness,
                jobs=JetStreamHeldJobs(platform.connection, names),
                registry=given.workers,
                log=given.log,
                snapshots=given.snapshots,
                grace_sec=settings.heartbeat.worker_gone_sec,
            )
            subscriptions.callback(await liveness.subscribe(dead_workers.tell))
            loops.append(dead_workers.run())
        async with _running(*loops):
            yield


@contextlib.asynccontextmanager
async def open_key_desk(settings: Settings) -> AsyncIterator[KeyDesk]:
    """Where keys are issued; UnavailableError if NATS does not answer."""
    async with open_platform(settings, name="pyoco-server keys") as platform:
        store = JetStreamKeyStore(platform.connection, names_of(settings))
        yield KeyDesk(store, SystemClock(), secrets.token_bytes, pepper=_pepper(settings))


def _pepper(settings: Settings) -> bytes:
    pepper = settings.auth.pepper
    return pepper.get_secret_value().encode() if pepper is not None else b""


def _index_path(settings: Settings) -> Path:
    settings.storage.data_dir.mkdir(parents=True, exist_ok=True)
    return settings.storage.data_dir / f"index-{settings.http.port}.sqlite"


@contextlib.asynccontextmanager
async def _running(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run loops beside what is inside; they end with it."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait for them; told again, since who is just being answered may not hear it (Python 3.11)."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_TOLD_AGAIN_SEC)
    await asyncio.gather(*tasks, return_exceptions=True)

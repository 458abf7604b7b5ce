"""A gateway, put together."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.jetstream.keys import JetStreamKeyStore
from pyoco_server.adapters.jetstream.snapshot_feed import JetStreamSnapshotFeed
from pyoco_server.adapters.readmodel import SqliteRunIndex
from pyoco_server.app.command_desk import CommandDesk
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.key_ring import KeyRing
from pyoco_server.app.keys import KeyDesk
from pyoco_server.app.lagging import Lagging
from pyoco_server.app.ports import SnapshotChange, position_of
from pyoco_server.app.sweeping import Sweeper, SweepOptions
from pyoco_server.bootstrap.platform import names_of, open_platform, run_desk, submitter, wheel_desk
from pyoco_server.gateway.auth_exposure import check_exposure
from pyoco_server.gateway.rate_limits import KeyLimits
from pyoco_server.gateway.services import Services
from pyoco_server.gateway.watching import WatchHub
from pyoco_server.settings import Settings


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[Services]:
    """Everything a gateway serves with; its index and its sweeps run as long as this is open."""
    check_exposure(settings)
    async with open_platform(settings, name="pyoco-server") as platform:
        clock, new_id, names = SystemClock(), uuid_maker(), names_of(settings)
        hub = WatchHub(most=settings.http.watch_max_connections, most_per_client=settings.http.watch_max_per_client)
        lagging = Lagging()

        def on_change(change: SnapshotChange) -> None:
            hub.tell(change)
            if change.body is not None:
                lagging.written(change.run_id, position_of(change.body))

        index = SqliteRunIndex(_index_path(settings))
        keeper = IndexKeeper(JetStreamSnapshotFeed(platform.connection, names), index, on_change)
        desk = run_desk(platform, settings)
        sweeper = Sweeper(
            desk=desk,
            index=index,
            snapshots=platform.snapshots,
            queue=platform.queue,
            lagging=lagging,
            clock=clock,
            options=SweepOptions(
                cancel_grace_sec=settings.worker.cancel_grace_period_sec,
                silent_sec=max(60.0, 3 * settings.consumer.ack_wait_sec),
            ),
        )
        await keeper.catch_up()
        unsubscribe = await platform.log.subscribe_all(
            lambda run_id, position: lagging.appended(run_id, position, clock.now().timestamp())
        )
        try:
            async with _running(keeper.run(), sweeper.run()):
                yield Services(
                    settings=settings,
                    store=platform.connection,
                    clock=clock,
                    new_id=new_id,
                    log=platform.log,
                    snapshots=platform.snapshots,
                    queue=platform.queue,
                    workers=platform.workers,
                    dead_letters=platform.dead_letters,
                    graphs=platform.graphs,
                    index=index,
                    keeper=keeper,
                    hub=hub,
                    submitter=submitter(platform, settings),
                    desk=desk,
                    commands=CommandDesk(desk, platform.graphs),
                    wheels=wheel_desk(platform, settings),
                    key_ring=KeyRing(JetStreamKeyStore(platform.connection, names), clock, pepper=_pepper(settings)),
                    limits=KeyLimits(
                        per_sec=settings.auth.rate_limit_per_sec,
                        at_once=settings.auth.max_concurrent_requests_per_key,
                    ),
                )
        finally:
            unsubscribe()
            await index.close()


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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

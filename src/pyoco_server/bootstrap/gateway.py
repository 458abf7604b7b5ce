"""Assembles a gateway: the ports on NATS, the use cases on the ports, and the loops that run in the background."""

import asyncio
import contextlib
import dataclasses
import logging
import random
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyoco_server.adapters.jetstream.stores.exhausted_jobs import JetStreamExhaustedJobs
from pyoco_server.adapters.jetstream.stores.in_flight_jobs import JetStreamInFlightJobs
from pyoco_server.adapters.jetstream.stores.keys import JetStreamKeyStore
from pyoco_server.adapters.jetstream.stores.listing import JetStreamListing
from pyoco_server.adapters.jetstream.stores.snapshot_feed import JetStreamSnapshotFeed
from pyoco_server.adapters.jetstream.stores.workers import JetStreamLiveness
from pyoco_server.adapters.jetstream.transport.greeting import greeting_of
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.adapters.private_files import private_directory, write_once
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.api_keys.cache import KeyCache
from pyoco_server.app.api_keys.service import KeyService
from pyoco_server.app.ports import SnapshotChange, TenantUsage, UnavailableError, head_of
from pyoco_server.app.recovery.dead_workers import DeadWorkers
from pyoco_server.app.recovery.exhausted_jobs import ExhaustedJobSweep
from pyoco_server.app.recovery.foreign_writes import ForeignWrites
from pyoco_server.app.recovery.rebuild import Rebuild
from pyoco_server.app.recovery.reconciler import Reconciler, ReconcilerOptions
from pyoco_server.app.runs.commands import RunCommands
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.app.tenancy.quotas import TenantQuotas
from pyoco_server.bootstrap.platform import Platform, names_of, open_platform, run_log_of, submitter, wheel_service_of
from pyoco_server.gateway.exposure import check_exposure
from pyoco_server.gateway.key_limits import KeyLimits
from pyoco_server.gateway.live.snapshot_hub import SnapshotHub
from pyoco_server.gateway.services import Services
from pyoco_server.logs import log_error
from pyoco_server.settings import Settings

_log = logging.getLogger(__name__)

_CANCEL_AGAIN_SEC: Final = 0.25


class _ChangeListeners(NamedTuple):
    """The receivers of every change of a snapshot."""

    hub: SnapshotHub
    lagging: SnapshotLag
    foreign: ForeignWrites

    def changed(self, change: SnapshotChange) -> None:
        """Notify all receivers of a change that the index has."""
        self.hub.notify(change)
        if change.body is not None:
            head = head_of(change.body)
            self.lagging.written(change.run_id, head.log_position)
            self.foreign.changed(change, head)


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings, *, own_nats: NatsServer | None = None) -> AsyncIterator[Services]:
    """Open everything that a gateway serves with; its index and its background loops run until it is closed.

    ``own_nats`` is the NATS server of ``settings``, if this process runs it.
    """
    check_exposure(settings)
    async with (
        open_platform(settings, name="pyoco-server") as platform,
        SqliteRunIndex(_index_path(settings)) as index,
    ):
        if own_nats is None:  # else it has reported its policy
            platform.durability.report()
        limits = {"most": settings.http.watch_max_connections, "most_per_client": settings.http.watch_max_per_client}
        await _protect_keys(platform, settings)
        run_log = run_log_of(platform, settings)
        listeners = _ChangeListeners(
            SnapshotHub(platform.snapshots.read, **limits), SnapshotLag(), ForeignWrites(run_log)
        )
        feed = JetStreamSnapshotFeed(platform.connection, names_of(settings))
        feed.listen(listeners.hub.announce)
        feed.listen(listeners.foreign.announced)
        updater = IndexUpdater(feed, index, listeners.changed)
        platform.snapshots.notify(updater.note_written)
        given = _services(settings, platform, index, updater, listeners, run_log)
        if own_nats is not None:
            given = dataclasses.replace(given, synced_by=lambda: own_nats.policy.synced_by)
        await platform.connection.serve_syncs()
        await updater.catch_up()
        async with _sweeping(given, platform, index, listeners, own_nats):
            yield given


def _services(
    settings: Settings,
    platform: Platform,
    index: SqliteRunIndex,
    updater: IndexUpdater,
    listeners: _ChangeListeners,
    run_log: RunLog,
) -> Services:
    clock = SystemClock()
    keys = JetStreamKeyStore(platform.connection, names_of(settings))

    async def usage(tenant_id: str, since: float) -> TenantUsage:
        await updater.catch_up()  # what other gateways have written
        await updater.reach()
        return await index.usage(tenant_id, since)

    return Services(
        settings=settings,
        store=platform.connection,
        synced_by=lambda: platform.durability.synced_by,
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
        index_updater=updater,
        hub=listeners.hub,
        submitter=submitter(platform, settings),
        run_log=run_log,
        commands=RunCommands(run_log, platform.graphs, limits=settings.limits.of_run),
        wheels=wheel_service_of(platform, settings),
        key_ring=KeyCache(keys, clock, pepper=_pepper(settings), closed=_ClosedBucketFiles(settings)),
        quotas=TenantQuotas(settings.limits.of_tenant, usage, clock),
        limits=KeyLimits(
            per_sec=settings.auth.rate_limit_per_sec, at_once=settings.auth.max_concurrent_requests_per_key
        ),
    )


@contextlib.asynccontextmanager
async def _sweeping(
    given: Services,
    platform: Platform,
    index: SqliteRunIndex,
    listeners: _ChangeListeners,
    own_nats: NatsServer | None,
) -> AsyncIterator[None]:
    """Run the loops that keep the index up to date and finish the work of processes that died."""
    names, clock, settings = names_of(given.settings), given.clock, given.settings
    exhausted_jobs = JetStreamExhaustedJobs(platform.connection, names)
    exhausted = ExhaustedJobSweep(
        jobs=exhausted_jobs,
        snapshots=given.snapshots,
        dead_letters=given.dead_letters,
        run_log=given.run_log,
        queue=given.queue,
        clock=clock,
        fresh_sec=settings.heartbeat.fresh_sec,
    )
    rebuild = Rebuild(
        run_log=given.run_log,
        index=index,
        listing=JetStreamListing(platform.connection, names),
        lagging=listeners.lagging,
        foreign=listeners.foreign,
        clock=clock,
        reconnects=lambda: platform.connection.nc.stats["reconnects"],
        fresh_sec=settings.heartbeat.fresh_sec,
    )
    reconciler = Reconciler(
        run_log=given.run_log,
        index=index,
        snapshots=given.snapshots,
        queue=given.queue,
        lagging=listeners.lagging,
        rebuild=rebuild,
        exhausted=exhausted,
        workers=given.workers,
        clock=clock,
        chance=random.Random(),  # noqa: S311 an order, not a secret
        options=ReconcilerOptions(
            cancel_grace_sec=settings.worker.cancel_grace_period_sec,
            worker_silent_sec=settings.heartbeat.worker_disconnect_timeout_sec,
            silent_sec=max(60.0, 3 * settings.consumer.ack_wait_sec),
        ),
    )

    def appended(run_id: str, position: int) -> None:
        listeners.lagging.appended(run_id, position, clock.now().timestamp())

    with contextlib.ExitStack() as subscriptions:
        subscriptions.callback(await given.log.subscribe_all(appended))
        subscriptions.callback(await exhausted_jobs.subscribe(exhausted.note_advisory))
        if own_nats is not None and own_nats.has_doubtful_blocks:
            await rebuild.compare(is_forced=True)
            own_nats.note_rebuilt()
        loops = [given.index_updater.run(), reconciler.run(), rebuild.run(), listeners.foreign.run()]
        if settings.heartbeat.worker_gone_sec > 0:
            liveness = JetStreamLiveness(platform.connection, names)
            dead_workers = DeadWorkers(
                liveness=liveness,
                jobs=JetStreamInFlightJobs(platform.connection, names),
                registry=given.workers,
                log=given.log,
                snapshots=given.snapshots,
                grace_sec=settings.heartbeat.worker_gone_sec,
            )
            subscriptions.callback(await liveness.subscribe(dead_workers.note_record))
            loops.append(dead_workers.run())
        async with _running(*loops):
            yield
        if platform.connection.is_connected:
            with contextlib.suppress(UnavailableError):  # then the next start compares
                await rebuild.note_state()


@contextlib.asynccontextmanager
async def open_key_service(settings: Settings) -> AsyncIterator[KeyService]:
    """Open the service that issues keys; UnavailableError if NATS does not answer."""
    async with open_platform(settings, name="pyoco-server keys") as platform:
        store = JetStreamKeyStore(platform.connection, names_of(settings))
        yield _key_service(store, settings)


class _ClosedBucketFiles:
    """Remembers in the data directory which buckets of keys are closed to records without a seal."""

    def __init__(self, settings: Settings) -> None:
        self._folder = Path(settings.storage.data_dir)

    def knows(self, mark: str) -> bool:
        return self._file(mark).exists()

    def remember(self, mark: str) -> None:
        if self._folder.is_dir():  # a command that runs elsewhere leaves no directory behind
            write_once(self._file(mark), "API keys without a seal are refused: see docs/security.md\n")

    def _file(self, mark: str) -> Path:
        return self._folder / f"keys-closed-{mark[:16]}"


def _key_service(store: JetStreamKeyStore, settings: Settings) -> KeyService:
    closed = _ClosedBucketFiles(settings)
    return KeyService(store, SystemClock(), secrets.token_bytes, pepper=_pepper(settings), closed=closed)


async def _protect_keys(platform: Platform, settings: Settings) -> None:
    """Seal the keys of earlier versions; warn if nothing keeps a writer of NATS from raising the rights of a key."""
    if settings.auth.mode == "none":
        return
    reasons = [] if _pepper(settings) else ["PYOCO_AUTH_PEPPER is not set, so any program can seal a record"]
    greeting = await greeting_of(settings.nats.urls[0])
    if greeting is not None and not greeting.auth_required:
        reasons.append("NATS has no users, so every program that reaches it can write everything there")
    for reason in reasons:
        log_error(_log, "ERR-PYOCO-0141", action="keys_unprotected", level=logging.WARNING, reason=reason)
    try:
        sealed = await _key_service(JetStreamKeyStore(platform.connection, names_of(settings)), settings).seal_once()
    except UnavailableError as error:
        log_error(_log, "ERR-PYOCO-0140", action="keys_not_sealed", level=logging.WARNING, exc=error, one_line=True)
        return
    if sealed:
        _log.info(
            "sealed the API keys of an earlier version: %s; from now on no record without a seal counts",
            ", ".join(key.api_key_id for key in sealed),
            extra={"action": "keys_sealed", "count": len(sealed)},
        )


def _pepper(settings: Settings) -> bytes:
    pepper = settings.auth.pepper
    return pepper.get_secret_value().encode() if pepper is not None else b""


def _index_path(settings: Settings) -> Path:
    private_directory(settings.storage.data_dir)
    return settings.storage.data_dir / f"index-{settings.http.port}.sqlite"


@contextlib.asynccontextmanager
async def _running(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run loops in the background until the block ends."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for them. Python 3.11 can lose a cancel, so it is repeated until the task ends."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_SEC)
    await asyncio.gather(*tasks, return_exceptions=True)

"""The use cases and ports that handlers work with: one object for all requests, and a view of it for each tenant.

A handler asks for :data:`ServicesDep` and gets the view of its sender's tenant, so that it cannot reach other runs.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Final, NoReturn, Protocol, cast

from fastapi import Depends, Request

from pyoco_server.app.api_keys.cache import KeyCache
from pyoco_server.app.ports import (
    Clock,
    DeadLetters,
    EventLog,
    GraphRegistry,
    NewId,
    OutputCopies,
    RunIndexReader,
    Snapshots,
    UnavailableError,
    WorkerRegistry,
    WorkQueue,
)
from pyoco_server.app.runs.commands import RunCommands
from pyoco_server.app.runs.redrive import Redriver, RunRedrives
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.runs.submit import IdempotentSubmitter, Submitter
from pyoco_server.app.snapshots.index_updater import IndexUpdater
from pyoco_server.app.tenancy.quotas import QUOTAS, TenantQuotas
from pyoco_server.app.tenancy.tenant_ports import (
    TenantIndex,
    TenantLog,
    TenantRunCache,
    TenantRunCommands,
    TenantSnapshots,
)
from pyoco_server.app.tenancy.tenant_views import TenantDeadLetters, TenantGraphs, TenantWorkers
from pyoco_server.app.wheels.service import WheelService
from pyoco_server.gateway.key_limits import KeyLimits
from pyoco_server.gateway.live.snapshot_hub import SnapshotHub
from pyoco_server.gateway.principal import PrincipalDep
from pyoco_server.gateway.timeouts import Writes
from pyoco_server.settings import Settings

MOST_VIEWS: Final = 1_000
"""The most tenants whose views are cached; a view holds nothing that becomes outdated."""

_NO_CONNECTION: Final = "there is no connection to NATS; the gateway is reconnecting"


class Reachable(Protocol):
    """Knows whether NATS is connected."""

    @property
    def is_connected(self) -> bool:
        """Whether it is connected, as far as the client knows."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Awaited:
    """The state of a gateway that started without NATS: it answers that NATS is missing, and serves nothing else."""

    settings: Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Use cases and ports, as the gateway needs them."""

    settings: Settings
    store: Reachable
    synced_by: Callable[[], str]
    """Which side syncs acknowledged data to the disk."""
    clock: Clock
    new_id: NewId
    log: EventLog
    snapshots: Snapshots
    queue: WorkQueue
    workers: WorkerRegistry
    dead_letters: DeadLetters
    graphs: GraphRegistry
    outputs: OutputCopies
    """Names begin with the id of a run: read only those of a run that the sender may see."""
    index: RunIndexReader
    index_updater: IndexUpdater
    hub: SnapshotHub
    submitter: Submitter
    run_log: RunLog
    commands: RunCommands
    wheels: WheelService
    key_ring: KeyCache
    limits: KeyLimits
    quotas: TenantQuotas
    """Of tenants; keys for all tenants, and requests without keys, have none."""
    writes: Writes = dataclasses.field(default_factory=Writes)
    known_runs: TenantRunCache = dataclasses.field(default_factory=TenantRunCache)
    tenant_id: str | None = None
    """The tenant to which this view is restricted."""
    views: dict[str, "Services"] = dataclasses.field(default_factory=dict)
    """By tenant; created when first needed."""

    def confined_to(self, tenant_id: str) -> "Services":
        """Return the view of a tenant, in which no run of another tenant exists."""
        view = self.views.get(tenant_id)
        if view is None:
            if len(self.views) >= MOST_VIEWS:
                self.views.clear()
            view = self.views[tenant_id] = self._create_view(tenant_id)
        return view

    def _create_view(self, tenant_id: str) -> "Services":
        most = self.settings.storage.run_snapshot_max_bytes
        snapshots = TenantSnapshots(self.snapshots, tenant_id, self.known_runs)
        log = TenantLog(self.log, snapshots, self.new_id, tenant_id, self.known_runs)
        graphs = TenantGraphs(self.graphs, tenant_id)
        run_log = RunLog(
            log=log,
            snapshots=snapshots,
            queue=self.queue,
            clock=self.clock,
            new_id=self.new_id,
            max_snapshot_bytes=most,
            fresh_sec=self.settings.heartbeat.fresh_sec,
        )
        submitter = Submitter(
            log=log,
            snapshots=snapshots,
            queue=self.queue,
            clock=self.clock,
            new_id=self.new_id,
            max_snapshot_bytes=most,
            quota=self.quotas.of(tenant_id),
        )
        return dataclasses.replace(
            self,
            tenant_id=tenant_id,
            log=log,
            snapshots=snapshots,
            graphs=graphs,
            index=TenantIndex(self.index_updater.index, tenant_id),
            workers=TenantWorkers(self.workers, snapshots, tenant_id),
            wheels=self.wheels.confined_to(tenant_id),
            dead_letters=TenantDeadLetters(self.dead_letters, snapshots),
            run_log=run_log,
            submitter=submitter,
            commands=TenantRunCommands(
                run_log, graphs, tenant_id, quota=self.quotas.of(tenant_id), limits=self.settings.limits.of_run
            ),
            views={},
        )

    @property
    def once(self) -> IdempotentSubmitter:
        """Submits a run once for each idempotency key."""
        return IdempotentSubmitter(self.submitter, self.run_log)

    def refused_by_quota(self) -> dict[str, int]:
        """Return how many submissions of the sender's tenant, or of all, were refused, by quota."""
        if self.tenant_id is None:
            return self.quotas.refused()
        return {quota: self.quotas.of(self.tenant_id).refused[quota] for quota in QUOTAS}

    async def quota_shares(self) -> dict[str, float]:
        """Return the used part of each quota that is set, of the sender's tenant; none for the platform as a whole."""
        limits = {quota: limit for quota, limit in self.quotas.limits.by_quota.items() if limit}
        if self.tenant_id is None or not limits:
            return {}
        used = dict(zip(QUOTAS, await self.quotas.of(self.tenant_id).usage(), strict=True))
        return {quota: used[quota] / limit for quota, limit in limits.items()}

    @property
    def redrives(self) -> RunRedrives:
        """Repeats ended runs as new ones."""
        redriver = Redriver(log=self.log, outputs=self.outputs, clock=self.clock, new_id=self.new_id)
        quota = None if self.tenant_id is None else self.quotas.of(self.tenant_id)
        return RunRedrives(self.run_log, redriver, self.new_id, quota=quota)

    async def up_to_date_index(self) -> RunIndexReader:
        """Return the index when it has all that this gateway has written: clients find the runs they submitted."""
        await self.index_updater.reach()
        return self.index

    @property
    def now(self) -> float:
        """The time in Unix seconds."""
        return self.clock.now().timestamp()


def services_of(services: Services | Awaited) -> Services:
    """Return the services; UnavailableError while the gateway waits for NATS."""
    if isinstance(services, Awaited):
        raise UnavailableError(_NO_CONNECTION)
    return services


async def connected(request: Request, principal: PrincipalDep) -> Services:
    """Return the services as the sender's tenant sees them; without a connection to NATS, ``_Unreached``."""
    found: Services | Awaited = request.app.state.services
    if isinstance(found, Awaited) or not found.store.is_connected:
        return cast("Services", _Unreached(found.settings))
    return found if principal.tenant_id is None else found.confined_to(principal.tenant_id)


def must_reach(services: Services) -> None:
    """UnavailableError without a connection to NATS: for handlers that answer each of many parts separately."""
    if not services.store.is_connected:
        raise UnavailableError(_NO_CONNECTION)


class _Unreached:
    """The services without a connection to NATS: the settings; anything else raises UnavailableError.

    FastAPI resolves dependencies before bodies and queries. If they raised, a request that is not valid would be
    answered with "try again later".
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __getattr__(self, name: str) -> NoReturn:
        raise UnavailableError(_NO_CONNECTION)


ServicesDep = Annotated[Services, Depends(connected)]
"""For handlers that need NATS, if only to know that their answer is not outdated."""

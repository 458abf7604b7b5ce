"""What the handlers work with. One object, made at the start, handed to every request."""

import dataclasses
from typing import Annotated, Final, NoReturn, Protocol, cast

from fastapi import Depends, Request

from pyoco_server.app.auth_tenancy import KnownRuns, TenantCommandDesk, TenantIndex, TenantLog, TenantSnapshots
from pyoco_server.app.auth_tenant_views import TenantDeadLetters, TenantGraphs, TenantWorkers
from pyoco_server.app.auth_veils import Veil
from pyoco_server.app.command_desk import CommandDesk
from pyoco_server.app.idempotency import Once
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.key_ring import KeyRing
from pyoco_server.app.ports import (
    Clock,
    DeadLetters,
    EventLog,
    GraphRegistry,
    NewId,
    OutputPieces,
    RunIndex,
    Snapshots,
    UnavailableError,
    WorkerRegistry,
    WorkQueue,
)
from pyoco_server.app.run_desk import RunDesk
from pyoco_server.app.submitting import Submitter
from pyoco_server.app.wheels import WheelDesk
from pyoco_server.gateway.outages import Writes
from pyoco_server.gateway.principal import Asking
from pyoco_server.gateway.rate_limits import KeyLimits
from pyoco_server.gateway.run_changes import RunChanges
from pyoco_server.gateway.run_ends import RunEnds
from pyoco_server.gateway.watching import WatchHub
from pyoco_server.settings import Settings

MOST_VIEWS: Final = 1_000
"""For so many tenants what they see is kept at hand; it holds nothing that could grow old."""

_AWAY: Final = "there is no connection to NATS; it is being tried again"


class Reachable(Protocol):
    """Says whether the outside can be reached."""

    @property
    def is_connected(self) -> bool:
        """Can it, as far as is known?"""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Awaited:
    """All there is of a gateway that began while NATS was away: nothing can be served yet, but why can be told."""

    settings: Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Use cases and ports, as the gateway needs them."""

    settings: Settings
    store: Reachable
    clock: Clock
    new_id: NewId
    log: EventLog
    snapshots: Snapshots
    queue: WorkQueue
    workers: WorkerRegistry
    dead_letters: DeadLetters
    graphs: GraphRegistry
    outputs: OutputPieces
    """Names begin with the id of a run: ask only for those of a run that the caller may see."""
    index: RunIndex
    keeper: IndexKeeper
    hub: WatchHub
    changes: RunChanges
    ends: RunEnds
    submitter: Submitter
    desk: RunDesk
    commands: CommandDesk
    wheels: WheelDesk
    key_ring: KeyRing
    limits: KeyLimits
    writes: Writes = dataclasses.field(default_factory=Writes)
    known_runs: KnownRuns = dataclasses.field(default_factory=KnownRuns)
    views: dict[str, "Services"] = dataclasses.field(default_factory=dict)
    """By tenant; made when they are first needed."""

    def confined_to(self, tenant_id: str) -> "Services":
        """The same as one tenant sees it: no handler can forget whose runs it is about."""
        view = self.views.get(tenant_id)
        if view is None:
            if len(self.views) >= MOST_VIEWS:
                self.views.clear()
            view = self.views[tenant_id] = self._made_for(tenant_id)
        return view

    def _made_for(self, tenant_id: str) -> "Services":
        most = self.settings.storage.run_snapshot_max_bytes
        snapshots = TenantSnapshots(self.snapshots, tenant_id, self.known_runs)
        log = TenantLog(self.log, snapshots, self.new_id, tenant_id, self.known_runs)
        graphs = TenantGraphs(self.graphs, tenant_id)
        desk = RunDesk(
            log=log,
            snapshots=snapshots,
            queue=self.queue,
            clock=self.clock,
            new_id=self.new_id,
            max_snapshot_bytes=most,
            in_hands_sec=self.settings.heartbeat.in_hands_sec,
        )
        submitter = Submitter(
            log=log,
            snapshots=snapshots,
            queue=self.queue,
            clock=self.clock,
            new_id=self.new_id,
            max_snapshot_bytes=most,
        )
        return dataclasses.replace(
            self,
            log=log,
            snapshots=snapshots,
            graphs=graphs,
            index=TenantIndex(self.index, tenant_id),
            workers=TenantWorkers(self.workers, snapshots),
            dead_letters=TenantDeadLetters(self.dead_letters, snapshots, self._veil_for(tenant_id)),
            desk=desk,
            submitter=submitter,
            commands=TenantCommandDesk(desk, graphs, tenant_id),
            views={},
        )

    def _veil_for(self, tenant_id: str) -> Veil:
        pepper = self.settings.auth.pepper
        return Veil(pepper.get_secret_value().encode() if pepper is not None else b"", tenant_id)

    @property
    def once(self) -> Once:
        """Submits, and the same only once."""
        return Once(self.submitter, self.desk, self.snapshots)

    async def up_to_date_index(self) -> RunIndex:
        """The index, as soon as it has all that this gateway has written: who submitted a run finds it in lists."""
        await self.keeper.reach()
        return self.index

    @property
    def now(self) -> float:
        """The time, in Unix seconds."""
        return self.clock.now().timestamp()


def at_hand(given: Services | Awaited) -> Services:
    """The services; UnavailableError if there are none yet."""
    if isinstance(given, Awaited):
        raise UnavailableError(_AWAY)
    return given


async def connected(request: Request, asking: Asking) -> Services:
    """What is at the disposal of whoever sent the request; if NATS is known to be away, see ``_Unreached``."""
    found: Services | Awaited = request.app.state.services
    if isinstance(found, Awaited) or not found.store.is_connected:
        return cast("Services", _Unreached(found.settings))
    return found if asking.tenant_id is None else found.confined_to(asking.tenant_id)


def must_reach(given: Services) -> None:
    """UnavailableError if NATS is known to be away: for handlers that answer for each of many by itself."""
    if not given.store.is_connected:
        raise UnavailableError(_AWAY)


class _Unreached:
    """The services while NATS is away: the settings, and UnavailableError for whoever wants anything else.

    Dependencies come before bodies and queries. If they raised, a request that can never succeed would be told to try
    again later.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __getattr__(self, name: str) -> NoReturn:
        raise UnavailableError(_AWAY)


Given = Annotated[Services, Depends(connected)]
"""For handlers that need NATS, be it only to know that what they tell is not old."""

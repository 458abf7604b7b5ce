"""The platform as one tenant sees it: the same ports, in which nobody else's runs exist.

Whoever works with these cannot forget to ask whose run it is. A run of somebody else's and a run there never was are
the same to them, and take the same steps to be found out about.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
from typing_extensions import override

from pyoco_server.app.command_desk import Answer, Asked, CommandDesk
from pyoco_server.app.ports import (
    DueWait,
    EventLog,
    GraphRegistry,
    IndexedRun,
    Latencies,
    LogConflictError,
    NewId,
    OnAppend,
    RunFilter,
    RunIndex,
    RunQuery,
    SilentRun,
    SnapshotChange,
    Snapshots,
    StoredSnapshot,
    Tally,
    Unsubscribe,
)
from pyoco_server.app.run_desk import RunDesk, RunNotFoundError
from pyoco_server.app.run_input import RunInput
from pyoco_server.core import Event
from pyoco_server.errors import InvalidInputError, PyocoServerError


class ForeignIdError(PyocoServerError):
    """The id is taken, by whomever."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


class _Owned(msgspec.Struct):
    tenant_id: str | None = None


_owned = msgspec.json.Decoder(_Owned)


class KnownRuns:
    """Runs that were found to be a tenant's, which they then are for ever: it need not be found out twice."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._known: dict[tuple[str, str], None] = {}

    def add(self, tenant_id: str, run_id: str) -> None:
        """Remember one, and forget the oldest if there are too many."""
        self._known[tenant_id, run_id] = None
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def has(self, tenant_id: str, run_id: str) -> bool:
        """Was it found to be the tenant's?"""
        return (tenant_id, run_id) in self._known


class TenantSnapshots:
    """Snapshots of the tenant's runs."""

    def __init__(self, snapshots: Snapshots, tenant_id: str, known: KnownRuns) -> None:
        self._snapshots = snapshots
        self._tenant_id = tenant_id
        self._known = known

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """The newest snapshot."""
        stored = await self._snapshots.read(run_id)
        if stored is None or not self._is_ours(stored.body):
            return None
        self._known.add(self._tenant_id, run_id)
        return stored

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        """Store a snapshot unless one of a newer position is there."""
        if not self._is_ours(body):
            raise PermissionError("a snapshot that is not the tenant's was to be written")
        return await self._snapshots.write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)

    async def sync(self) -> None:
        """Return when all that is stored is durable."""
        await self._snapshots.sync()

    async def forbid(self, run_id: str) -> bool:
        """Refuse a first write that is still on its way; False if there is a snapshot."""
        return await self._snapshots.forbid(run_id)

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot."""
        if not await self.is_foreign(run_id):
            await self._snapshots.delete(run_id)

    async def is_foreign(self, run_id: str) -> bool:
        """Does a snapshot say that the run is somebody else's? One that was not yet written says nothing."""
        if self._known.has(self._tenant_id, run_id):
            return False
        stored = await self._snapshots.read(run_id)
        if stored is None:
            return False
        if self._is_ours(stored.body):
            self._known.add(self._tenant_id, run_id)
            return False
        return True

    def _is_ours(self, body: bytes) -> bool:
        try:
            return _owned.decode(body).tenant_id == self._tenant_id
        except msgspec.DecodeError:
            return False


class TenantLog:
    """Logs of the tenant's runs."""

    def __init__(
        self, log: EventLog, snapshots: TenantSnapshots, new_id: NewId, tenant_id: str, known: KnownRuns
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._new_id = new_id
        self._tenant_id = tenant_id
        self._known = known

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """The events behind ``after``; none, if the run is not the tenant's."""
        if after > 0:
            if not await self._is_there(execution_id):
                return [], 0
            return await self._log.read(execution_id, after=after)
        # The log of somebody else's run may be long: it is not read, or the time this takes would tell that it exists.
        # Instead as much is done as for a run there never was.
        is_foreign = await self._snapshots.is_foreign(execution_id)
        events, position = await self._log.read(self._new_id() if is_foreign else execution_id)
        if not events or not self._is_ours(events[0]):
            return [], 0
        self._known.add(self._tenant_id, execution_id)
        return events, position

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Add a commit; ForeignIdError if it would begin a log that is not the tenant's."""
        if after > 0:
            await self._check(execution_id)
            return await self._log.append(execution_id, commit, after=after, quiet=quiet)
        if not self._is_ours(commit[0]):
            raise PermissionError("a run that is not the tenant's was to be created")
        try:
            position = await self._log.append(execution_id, commit, after=0, quiet=quiet)
        except LogConflictError as error:
            if not await self._is_there(execution_id):
                raise ForeignIdError(f"the id '{execution_id}' is taken; choose another") from error
            raise
        self._known.add(self._tenant_id, execution_id)
        return position

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Be told of commits to a log of the tenant's; RunNotFoundError if it is not."""
        await self._check(execution_id)
        return await self._log.subscribe(execution_id, on_append)

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:  # noqa: ARG002 as the port has it
        """Nobody listens to everything."""
        raise PermissionError("a tenant cannot listen to all runs")

    async def _check(self, execution_id: str) -> None:
        if not await self._is_there(execution_id):
            raise RunNotFoundError(execution_id)

    async def _is_there(self, execution_id: str) -> bool:
        return self._known.has(self._tenant_id, execution_id) or bool((await self.read(execution_id))[0])

    def _is_ours(self, created: Event) -> bool:
        return RunInput.of_creation(created).tenant_id == self._tenant_id


class TenantIndex:
    """The index, for questions about the tenant's runs; what keeps it up to date is not a tenant's business."""

    def __init__(self, index: RunIndex, tenant_id: str) -> None:
        self._index = index
        self._tenant_id = tenant_id

    async def page(self, query: RunQuery) -> Sequence[IndexedRun]:
        """The newest of the tenant's runs that fit."""
        return _shown(await self._index.page(msgspec.structs.replace(query, tenant_id=self._tenant_id)))

    async def counts(self, tenant_id: str | None = None) -> Mapping[str, int]:
        """How many of the tenant's runs have which status, whoever is asked about."""
        del tenant_id
        return await self._index.counts(self._tenant_id)

    async def held_count(self, tenant_id: str | None = None) -> int:
        """Return how many of the tenant's runs are held, whichever tenant is named."""
        del tenant_id
        return await self._index.held_count(self._tenant_id)

    async def tally(self, wanted: RunFilter) -> Tally:
        """How many of the tenant's runs that fit have which status."""
        return await self._index.tally(msgspec.structs.replace(wanted, tenant_id=self._tenant_id))

    async def tags(self, status: str, tenant_id: str | None = None, limit: int = 50) -> Mapping[str, int]:
        """The tags of the tenant's runs that have this status, whoever is asked about."""
        del tenant_id
        return await self._index.tags(status, self._tenant_id, limit)

    async def among(self, run_ids: Sequence[str], wanted: RunFilter) -> Sequence[IndexedRun]:
        """Those of these runs that are the tenant's and fit."""
        return _shown(await self._index.among(run_ids, msgspec.structs.replace(wanted, tenant_id=self._tenant_id)))

    async def latencies(self, tenant_id: str | None = None) -> Latencies:
        """How long the tenant's runs took, whoever is asked about."""
        del tenant_id
        return await self._index.latencies(self._tenant_id)

    async def submitted_on_day_of(self, moment: float, tenant_id: str | None = None) -> int:
        """How many of the tenant's runs were submitted on this day, whoever is asked about."""
        del tenant_id
        return await self._index.submitted_on_day_of(moment, self._tenant_id)

    async def position(self) -> int:
        """Counts everybody's changes."""
        raise _not_a_tenants_business()

    async def origin(self) -> str:
        """Which snapshots it was made from."""
        raise _not_a_tenants_business()

    async def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:  # noqa: ARG002 as the port has it
        """Changes of everybody's runs."""
        raise _not_a_tenants_business()

    async def forget(self, before: int) -> None:  # noqa: ARG002
        """Everybody's runs."""
        raise _not_a_tenants_business()

    async def clear(self, origin: str = "") -> None:  # noqa: ARG002
        """Everybody's runs."""
        raise _not_a_tenants_business()

    async def due(self, now: float, limit: int = 100) -> Sequence[DueWait]:  # noqa: ARG002
        """Waits of everybody's runs."""
        raise _not_a_tenants_business()

    async def silent(
        self,
        since: float,  # noqa: ARG002
        limit: int = 100,  # noqa: ARG002
        *,
        after: tuple[float, int] | None = None,  # noqa: ARG002
    ) -> Sequence[SilentRun]:
        """Everybody's runs."""
        raise _not_a_tenants_business()


class TenantCommandDesk(CommandDesk):
    """Takes commands of one tenant's."""

    def __init__(self, desk: RunDesk, graphs: GraphRegistry, tenant_id: str) -> None:
        super().__init__(desk, graphs)
        self._tenant_id = tenant_id

    @override
    async def create(self, asked: Asked) -> Answer:
        """Create an execution; InvalidInputError if its id is chosen, and not one only this tenant can choose.

        Otherwise whoever guesses an id would learn from the answer that somebody else has it, or keep it from them.
        """
        chosen, beginning = asked.fields.get("executionId"), f"{self._tenant_id}--"
        if chosen is not None and not str(chosen).startswith(beginning):
            raise InvalidInputError(f"executionId: an id of your own choice must begin with '{beginning}'")
        return await super().create(asked)


def _shown(found: Sequence[IndexedRun]) -> Sequence[IndexedRun]:
    """Without the runs' positions in the log of all runs, which tell how much everybody does."""
    for run in found:
        run.summary.pop("log_position", None)
    return found


def _not_a_tenants_business() -> PermissionError:
    return PermissionError("only those who keep the index for everybody may do this")

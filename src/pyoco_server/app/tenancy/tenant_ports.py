"""The platform as one tenant sees it: the same ports, in which runs of other tenants do not exist.

Code that works with these ports cannot forget to check the tenant. A run of another tenant and a run that does not
exist give the same answer after the same calls, so that neither the answer nor its time reveals that the run exists.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
from typing_extensions import override

from pyoco_server.app.ports import (
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
    RunTally,
    Snapshots,
    StoredSnapshot,
    Unsubscribe,
)
from pyoco_server.app.runs.commands import CommandResult, RunCommands, Sender
from pyoco_server.app.runs.run_log import RunLog, RunNotFoundError
from pyoco_server.app.runs.submit import Quota
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.core import Event
from pyoco_server.core.commands import CreateExecution
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.flows.limits import RunLimits


class ForeignIdError(PyocoServerError):
    """The chosen id is taken, perhaps by another tenant."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


class _OwnedRecord(msgspec.Struct):
    tenant_id: str | None = None


_owned = msgspec.json.Decoder(_OwnedRecord)


class TenantRunCache:
    """Remembers which runs belong to which tenant. That never changes, so no run is checked twice."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._known: dict[tuple[str, str], None] = {}

    def add(self, tenant_id: str, run_id: str) -> None:
        """Remember that the run belongs to the tenant; forget the oldest entry if there are too many."""
        self._known[tenant_id, run_id] = None
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def has(self, tenant_id: str, run_id: str) -> bool:
        """Return whether the run is known to belong to the tenant."""
        return (tenant_id, run_id) in self._known


class TenantSnapshots:
    """Snapshots of the tenant's runs."""

    def __init__(self, snapshots: Snapshots, tenant_id: str, known: TenantRunCache) -> None:
        self._snapshots = snapshots
        self._tenant_id = tenant_id
        self._known = known

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """Return the newest snapshot; None if the run is not the tenant's."""
        stored = await self._snapshots.read(run_id)
        if stored is None or not self._is_ours(stored.body):
            return None
        self._known.add(self._tenant_id, run_id)
        return stored

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        """Store a snapshot unless a newer one is stored; PermissionError if it is not the tenant's."""
        if not self._is_ours(body):
            raise PermissionError("the snapshot belongs to another tenant")
        return await self._snapshots.write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)

    async def sync(self) -> None:
        """Return when all that is stored is durable."""
        await self._snapshots.sync()

    async def forbid(self, run_id: str) -> bool:
        """Refuse a first write that has not arrived yet; False if there is a snapshot."""
        return await self._snapshots.forbid(run_id)

    async def delete(self, run_id: str) -> None:
        """Remove the snapshot of a run, unless it is another tenant's."""
        if not await self.look_whether_foreign(run_id):
            await self._snapshots.delete(run_id)

    async def look_whether_foreign(self, run_id: str) -> bool:
        """Return whether a snapshot shows that the run is another tenant's; False if there is none yet."""
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
        self, log: EventLog, snapshots: TenantSnapshots, new_id: NewId, tenant_id: str, known: TenantRunCache
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._new_id = new_id
        self._tenant_id = tenant_id
        self._known = known

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events after ``after`` and where the log ends; none if the run is not the tenant's."""
        if after > 0:
            if not await self._look_whether_there(execution_id):
                return [], 0
            return await self._log.read(execution_id, after=after)
        # The log of another tenant's run may be long: reading it would take time, which would reveal that it exists.
        # Instead the log of a random id is read, as for a run that does not exist.
        is_foreign = await self._snapshots.look_whether_foreign(execution_id)
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
            raise PermissionError("the run belongs to another tenant")
        try:
            position = await self._log.append(execution_id, commit, after=0, quiet=quiet)
        except LogConflictError as error:
            if not await self._look_whether_there(execution_id):
                raise ForeignIdError(f"the id '{execution_id}' is taken; choose another") from error
            raise
        self._known.add(self._tenant_id, execution_id)
        return position

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Call ``on_append`` for each commit to the run's log; RunNotFoundError if the run is not the tenant's."""
        await self._check(execution_id)
        return await self._log.subscribe(execution_id, on_append)

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:  # noqa: ARG002 as the port has it
        """Raise PermissionError: the logs of all runs are not a tenant's."""
        raise PermissionError("a tenant cannot subscribe to the logs of all runs")

    async def _check(self, execution_id: str) -> None:
        if not await self._look_whether_there(execution_id):
            raise RunNotFoundError(execution_id)

    async def _look_whether_there(self, execution_id: str) -> bool:
        return self._known.has(self._tenant_id, execution_id) or bool((await self.read(execution_id))[0])

    def _is_ours(self, created: Event) -> bool:
        return RunInput.of_creation(created).tenant_id == self._tenant_id


class TenantIndex:
    """Reads the index for one tenant: other tenants' runs are neither listed nor counted."""

    def __init__(self, index: RunIndex, tenant_id: str) -> None:
        self._index = index
        self._tenant_id = tenant_id

    async def page(self, query: RunQuery) -> Sequence[IndexedRun]:
        """Return the newest of the tenant's runs that fit."""
        return _shown(await self._index.page(msgspec.structs.replace(query, tenant_id=self._tenant_id)))

    async def counts(self) -> Mapping[str, int]:
        """Return the number of the tenant's runs by status."""
        return await self._index.counts(self._tenant_id)

    async def held_count(self) -> int:
        """Return how many of the tenant's runs are held."""
        return await self._index.held_count(self._tenant_id)

    async def tally(self, wanted: RunFilter) -> RunTally:
        """Return the number of the tenant's runs that fit, by status."""
        return await self._index.tally(msgspec.structs.replace(wanted, tenant_id=self._tenant_id))

    async def tags(self, status: str, *, limit: int = 50) -> Mapping[str, int]:
        """Return the tags of the tenant's runs with this status, and how many runs have each."""
        return await self._index.tags(status, self._tenant_id, limit=limit)

    async def among(self, run_ids: Sequence[str], wanted: RunFilter) -> Sequence[IndexedRun]:
        """Return those of these runs that are the tenant's and fit."""
        return _shown(await self._index.among(run_ids, msgspec.structs.replace(wanted, tenant_id=self._tenant_id)))

    async def redriven(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the tenant's runs that repeat these."""
        return await self._index.redriven(run_ids, self._tenant_id)

    async def latencies(self) -> Latencies:
        """Return how long the tenant's runs took."""
        return await self._index.latencies(self._tenant_id)

    async def submitted_on_day_of(self, moment: float) -> int:
        """Return how many of the tenant's runs were submitted on this day (UTC)."""
        return await self._index.submitted_on_day_of(moment, self._tenant_id)


class TenantRunCommands(RunCommands):
    """Handles commands of one tenant."""

    def __init__(
        self, run_log: RunLog, graphs: GraphRegistry, tenant_id: str, *, quota: Quota, limits: RunLimits
    ) -> None:
        super().__init__(run_log, graphs, limits=limits)
        self._quota = quota
        self._tenant_id = tenant_id

    @override
    async def create(self, command: CreateExecution, sender: Sender, *, is_id_chosen: bool) -> CommandResult:
        """Create an execution; InvalidInputError for a chosen id that does not begin with the tenant's name.

        Another tenant could choose such an id too, and the answer would reveal that it is taken.
        """
        prefix = f"{self._tenant_id}--"
        if is_id_chosen and not command.execution_id.startswith(prefix):
            raise InvalidInputError(f"executionId: an id of your own choice must begin with '{prefix}'")
        async with self._quota.submission():
            return await super().create(command, sender, is_id_chosen=is_id_chosen)


def _shown(found: Sequence[IndexedRun]) -> Sequence[IndexedRun]:
    """Remove the runs' positions in the stream of all runs, which would reveal how busy other tenants are."""
    for run in found:
        run.summary.pop("log_position", None)
    return found

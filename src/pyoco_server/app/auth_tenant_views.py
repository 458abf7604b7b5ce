"""What tenants share, as one of them sees it: graphs by names of their own, and nothing of others' runs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyoco_server.app.announced_flows import FLOWS, FLOWS_AT
from pyoco_server.app.auth_tenancy import TenantSnapshots
from pyoco_server.app.auth_veils import Veil
from pyoco_server.app.ports import DeadLetter, DeadLetters, GraphRegistry, WorkerRecord, WorkerRegistry
from pyoco_server.errors import InvalidInputError

LETTERS_LOOKED_AT: Final = 1_000
"""A dead letter names a run, not a tenant; so many of the newest are looked through for the tenant's."""

_AT_ONCE: Final = 32
_OF_EVERYBODY: Final = frozenset({FLOWS, FLOWS_AT})
"""A worker serves all tenants; the names of its flows may be those of others."""
_LAST_RUN: Final = ("last_run_id", "last_run_status", "last_run_started_at", "last_run_finished_at")
"""What a worker's record says of the run it did last."""


class TenantGraphs:
    """Graphs the tenant registered: two tenants may use one name for two graphs."""

    def __init__(self, graphs: GraphRegistry, tenant_id: str) -> None:
        self._graphs = graphs
        self._tenant_id = tenant_id

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if another one of the tenant's has the id already."""
        return await self._graphs.put(self._name(graph_id), encoded)

    async def get(self, graph_id: str) -> bytes | None:
        """The graph the tenant registered under the id."""
        return await self._graphs.get(self._name(graph_id))

    def _name(self, graph_id: str) -> str:
        """A tenant's name has no dot in it, so that no graph's name reaches into another tenant's."""
        return f"{self._tenant_id}.{graph_id}"


class TenantDeadLetters:
    """Dead letters of the tenant's runs. One that names no run is nobody's, and not shown to tenants.

    Their numbers are veiled: as they are stored, they count everybody's.
    """

    def __init__(self, letters: DeadLetters, snapshots: TenantSnapshots, veil: Veil) -> None:
        self._letters = letters
        self._snapshots = snapshots
        self._veil = veil

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Keep an entry."""
        await self._letters.publish(tag, entry)

    async def count(self) -> int:
        """How many of the tenant's are kept, among the newest there are."""
        return len(await self.newest(LETTERS_LOOKED_AT))

    async def newest(self, limit: int) -> Sequence[DeadLetter]:
        """The newest of the tenant's, newest first, among the newest there are."""
        found: list[DeadLetter] = []
        letters = await self._letters.newest(LETTERS_LOOKED_AT)
        for start in range(0, len(letters), _AT_ONCE):
            some = letters[start : start + _AT_ONCE]
            ours = await asyncio.gather(*map(self._is_ours, some))
            found += [self._shown(letter) for letter, is_ours in zip(some, ours, strict=True) if is_ours]
            if len(found) >= limit:
                break
        return found[:limit]

    async def get(self, sequence: int) -> DeadLetter | None:
        """The one the tenant knows by this number, if it is about a run of the tenant's."""
        stored = self._veil.uncover(sequence)
        found = await self._letters.get(stored) if stored else None
        return self._shown(found) if found is not None and await self._is_ours(found) else None

    def _shown(self, letter: DeadLetter) -> DeadLetter:
        return letter._replace(sequence=self._veil.hide(letter.sequence))

    async def _is_ours(self, letter: DeadLetter) -> bool:
        return await _is_run_of(self._snapshots, letter.entry.get("run_id"))


class TenantWorkers:
    """The workers, who serve all tenants; which runs of others they are at is not told."""

    def __init__(self, workers: WorkerRegistry, snapshots: TenantSnapshots) -> None:
        self._workers = workers
        self._snapshots = snapshots

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store what ``change`` makes of the whole record."""
        changed = await self._workers.update(worker_id, change)
        return None if changed is None else await self._shown(changed)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """A worker's record."""
        found = await self._workers.get(worker_id)
        return None if found is None else await self._shown(found)

    async def all(self) -> Sequence[WorkerRecord]:
        """All records."""
        return [await self._shown(record) for record in await self._workers.all()]

    async def _shown(self, record: WorkerRecord) -> WorkerRecord:
        named = {record.get("current_run_id"), record.get("last_run_id"), *record.get("current_run_ids", ())}
        foreign = {run_id for run_id in named if not await _is_run_of(self._snapshots, run_id)}
        shown = {name: value for name, value in record.items() if name not in _OF_EVERYBODY}
        if record.get("current_run_id") in foreign:
            shown["current_run_id"] = None
        if "current_run_ids" in record:
            shown["current_run_ids"] = [run_id for run_id in record["current_run_ids"] if run_id not in foreign]
        if record.get("last_run_id") in foreign:
            shown |= dict.fromkeys(set(_LAST_RUN) & record.keys())
        return shown


async def _is_run_of(snapshots: TenantSnapshots, run_id: object) -> bool:
    try:
        return isinstance(run_id, str) and await snapshots.read(run_id) is not None
    except InvalidInputError:  # what an invalid job called its run need not be an id
        return False

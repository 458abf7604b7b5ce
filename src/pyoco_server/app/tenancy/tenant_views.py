"""What tenants share, as one of them sees it: graphs under names of their own, dead letters, workers.

Runs of other tenants appear nowhere, and no number reveals how many there are.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import DeadLetters, GraphRegistry, StoredDeadLetter, WorkerRecord, WorkerRegistry
from pyoco_server.app.recovery.announced_flows import FLOWS, FLOWS_AT
from pyoco_server.app.recovery.worker_views import HIDDEN_FOR
from pyoco_server.app.tenancy.tenant_ports import TenantSnapshots
from pyoco_server.errors import InvalidInputError

_ID_BITS: Final = 52
"""Every reader of JSON takes integers of this size as they are."""
LETTERS_LOOKED_AT: Final = 1_000
"""A dead letter names a run, not a tenant. The tenant's are searched for among so many of the newest."""

_AT_ONCE: Final = 32
_SHARED_FIELDS: Final = frozenset({FLOWS, FLOWS_AT, HIDDEN_FOR})
"""A worker serves all tenants, so the flows it announces may be those of others, and so may be who hid it."""
_LAST_RUN: Final = ("last_run_id", "last_run_status", "last_run_started_at", "last_run_finished_at")
"""The fields of a worker's record about the run it executed last."""


class TenantGraphs:
    """Graphs the tenant registered: two tenants may use one name for two graphs."""

    def __init__(self, graphs: GraphRegistry, tenant_id: str) -> None:
        self._graphs = graphs
        self._tenant_id = tenant_id

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if another graph of the tenant has the id already."""
        return await self._graphs.put(self._name(graph_id), encoded)

    async def get(self, graph_id: str) -> bytes | None:
        """Return the graph that the tenant registered under the id."""
        return await self._graphs.get(self._name(graph_id))

    def _name(self, graph_id: str) -> str:
        """Return the stored id. A tenant's name has no dot in it, so no id reaches into another tenant's names."""
        return f"{self._tenant_id}.{graph_id}"


class TenantDeadLetters:
    """Dead letters of the tenant's runs. One that names no run belongs to no tenant.

    The numbers under which letters are stored count those of all tenants. A tenant sees an id that is derived from what
    the letter says instead, so that letters of every writer have one.
    """

    def __init__(self, letters: DeadLetters, snapshots: TenantSnapshots) -> None:
        self._letters = letters
        self._snapshots = snapshots

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Keep an entry."""
        await self._letters.publish(tag, entry)

    async def count(self) -> int:
        """Return how many of the tenant's letters are among the newest :data:`LETTERS_LOOKED_AT`."""
        return len(await self.newest(LETTERS_LOOKED_AT))

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        """Return the newest of the tenant's letters, newest first, among the newest :data:`LETTERS_LOOKED_AT`."""
        found: list[StoredDeadLetter] = []
        letters = await self._letters.newest(LETTERS_LOOKED_AT)
        for start in range(0, len(letters), _AT_ONCE):
            some = letters[start : start + _AT_ONCE]
            ours = await asyncio.gather(*map(self._look_whether_ours, some))
            found += [_shown(letter) for letter, is_ours in zip(some, ours, strict=True) if is_ours]
            if len(found) >= limit:
                break
        return found[:limit]

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        """Return the tenant's letter with this id, if it is among the newest :data:`LETTERS_LOOKED_AT`."""
        for letter in await self._letters.newest(LETTERS_LOOKED_AT):
            if _id_of(letter) == sequence and await self._look_whether_ours(letter):
                return _shown(letter)
        return None

    async def _look_whether_ours(self, letter: StoredDeadLetter) -> bool:
        return await _look_whether_run_of(self._snapshots, letter.entry.get("run_id"))


def _shown(letter: StoredDeadLetter) -> StoredDeadLetter:
    return letter._replace(sequence=_id_of(letter))


def _id_of(letter: StoredDeadLetter) -> int:
    written = msgspec.json.encode([letter.tag, letter.entry], order="sorted")
    return 1 + (int.from_bytes(hashlib.sha256(written).digest()[:8]) >> (64 - _ID_BITS))


class TenantWorkers:
    """The workers, which serve all tenants, without the runs of other tenants they execute.

    A tenant hides a worker in its own lists only.
    """

    def __init__(self, workers: WorkerRegistry, snapshots: TenantSnapshots, tenant_id: str) -> None:
        self._workers = workers
        self._snapshots = snapshots
        self._tenant_id = tenant_id

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store whether ``change`` hides the worker for the tenant; nothing else of the record changes."""

        def change_own(found: WorkerRecord | None) -> WorkerRecord | None:
            changed = change(found)
            if found is None or changed is None:
                return None
            return {**found, HIDDEN_FOR: {**_choices(found), self._tenant_id: changed.get("hidden") is True}}

        changed = await self._workers.update(worker_id, change_own)
        return None if changed is None else await self._shown(changed)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """Return a worker's record, if it has one."""
        found = await self._workers.get(worker_id)
        return None if found is None else await self._shown(found)

    async def all(self) -> Sequence[WorkerRecord]:
        """Return all records."""
        return [await self._shown(record) for record in await self._workers.all()]

    async def _shown(self, record: WorkerRecord) -> WorkerRecord:
        named = {record.get("current_run_id"), record.get("last_run_id"), *record.get("current_run_ids", ())}
        foreign = {run_id for run_id in named if not await _look_whether_run_of(self._snapshots, run_id)}
        shown = {name: value for name, value in record.items() if name not in _SHARED_FIELDS}
        shown["hidden"] = _choices(record).get(self._tenant_id, record.get("hidden", False))
        if record.get("current_run_id") in foreign:
            shown["current_run_id"] = None
        if "current_run_ids" in record:
            shown["current_run_ids"] = [run_id for run_id in record["current_run_ids"] if run_id not in foreign]
        if record.get("last_run_id") in foreign:
            shown |= dict.fromkeys(set(_LAST_RUN) & record.keys())
        return shown


def _choices(record: WorkerRecord) -> dict[str, Any]:
    """Return which tenants hid or showed the worker; another program may have written anything."""
    found = record.get(HIDDEN_FOR)
    return found if isinstance(found, dict) else {}


async def _look_whether_run_of(snapshots: TenantSnapshots, run_id: object) -> bool:
    try:
        return isinstance(run_id, str) and await snapshots.read(run_id) is not None
    except InvalidInputError:  # an invalid job may name a run by what is no id
        return False

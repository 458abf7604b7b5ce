"""The registry of workers in memory, stored as the bytes that would be on disk."""

from collections.abc import Callable, Sequence

import msgspec

from pyoco_server.app.ports import WorkerRecord

_decoder = msgspec.json.Decoder(WorkerRecord)


class MemoryWorkerRegistry:
    """One record a worker; nobody can be quicker than somebody else here."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store what ``change`` makes of the current record."""
        changed = change(await self.get(worker_id))
        if changed is None:
            return None
        self._records[worker_id] = msgspec.json.encode(changed)
        return await self.get(worker_id)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """A worker's record."""
        stored = self._records.get(worker_id)
        return None if stored is None else _decoder.decode(stored)

    async def all(self) -> Sequence[WorkerRecord]:
        """All records, by worker id."""
        return [_decoder.decode(self._records[worker_id]) for worker_id in sorted(self._records)]

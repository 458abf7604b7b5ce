"""Dead letters, graphs, API keys, large outputs and workers in memory, encoded as they would be on disk."""

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import StoredDeadLetter, WorkerRecord
from pyoco_server.app.ports.keys import KeyRecords, StoredKey
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import KEY, object_name


class MemoryDeadLetters:
    """Dead letters in the order of their arrival; a number is a place in it."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, bytes]] = []

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Store an entry."""
        self._kept.append((tag, msgspec.json.encode(entry)))

    async def count(self) -> int:
        """Return how many letters are stored."""
        return len(self._kept)

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        """Return the newest ``limit`` letters, newest first."""
        numbered = zip(range(len(self._kept), 0, -1), reversed(self._kept), strict=True)
        return [
            StoredDeadLetter(number, tag, msgspec.json.decode(body))
            for number, (tag, body) in islice(numbered, max(limit, 0))
        ]

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        """Return the letter with this number, if it is stored."""
        if not 1 <= sequence <= len(self._kept):
            return None
        tag, body = self._kept[sequence - 1]
        return StoredDeadLetter(sequence, tag, msgspec.json.decode(body))


class MemoryGraphRegistry:
    """Graphs by id; a registered graph does not change."""

    def __init__(self) -> None:
        self._graphs: dict[str, bytes] = {}

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if a different graph has the id already."""
        return self._graphs.setdefault(KEY.checked(graph_id, "graphId"), bytes(encoded)) == encoded

    async def get(self, graph_id: str) -> bytes | None:
        """Return the graph registered under the id."""
        return self._graphs.get(KEY.checked(graph_id, "graphId"))


class MemoryKeyStore:
    """Keys by id; the version counts all writes."""

    name = "memory"

    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {}
        self._marks = frozenset[str]()
        self._writes = 0

    async def add(self, key: StoredKey) -> bool:
        """Store a new key; False if its id is taken."""
        if key.api_key_id in self._keys:
            return False
        self._put(key)
        return True

    async def update(self, api_key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey | None:
        """Store what ``change`` makes of a key, and return it."""
        found = self._keys.get(api_key_id)
        if found is None:
            return None
        changed = change(found)
        if changed != found:
            self._put(changed)
        return changed

    async def read(self, known: KeyRecords | None = None) -> KeyRecords:
        """Return all keys; ``known`` itself if nothing has changed since."""
        version = str(self._writes)
        if known is not None and known.version == version:
            return known
        return KeyRecords(version, [*self._keys.values()], self._marks)

    async def put_mark(self, mark: str) -> None:
        """Store a mark that closes the bucket to records without a seal."""
        self._marks |= {mark}
        self._writes += 1

    def _put(self, key: StoredKey) -> None:
        self._keys[key.api_key_id] = key
        self._writes += 1


_PIECE_BYTES: Final = 256 * 1024


class MemoryOutputStore:
    """Bytes by name."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    async def put(self, name: str, data: bytes) -> None:
        """Store ``data`` under ``name``; InvalidInputError if other data are stored under it."""
        if self._kept.setdefault(object_name(name), bytes(data)) != data:
            raise InvalidInputError(f"the name {name!r:.80} cannot be used: something else is kept under it")

    async def get(self, name: str) -> bytes | None:
        """Return the bytes stored under ``name``, if there are any."""
        return self._kept.get(object_name(name))

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the bytes stored under ``name``."""
        data = self._kept.get(object_name(name), b"")
        for place in range(0, len(data), _PIECE_BYTES):
            yield data[place : place + _PIECE_BYTES]

    async def delete(self, name: str) -> None:
        """Remove the bytes stored under ``name``."""
        self._kept.pop(object_name(name), None)


_decoder = msgspec.json.Decoder(WorkerRecord)


class MemoryWorkerRegistry:
    """One record for each worker. No two updates run at the same time."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store what ``change`` makes of the current record, and return it."""
        changed = change(await self.get(worker_id))
        if changed is None:
            return None
        self._records[worker_id] = msgspec.json.encode(changed)
        return await self.get(worker_id)

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """Return a worker's record, if it has one."""
        stored = self._records.get(worker_id)
        return None if stored is None else _decoder.decode(stored)

    async def all(self) -> Sequence[WorkerRecord]:
        """Return all records, ordered by worker id."""
        return [_decoder.decode(self._records[worker_id]) for worker_id in sorted(self._records)]

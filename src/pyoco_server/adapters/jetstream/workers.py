"""The registry of workers in a KV bucket."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.kv import Bucket
from pyoco_server.adapters.jetstream.names import Names, bucket_key
from pyoco_server.adapters.jetstream.translation import ChangedError
from pyoco_server.app.ports import UnavailableError, WorkerRecord
from pyoco_server.errors import InvalidInputError

_MOST_TRIES: Final = 100

_decoder = msgspec.json.Decoder(WorkerRecord)


class JetStreamWorkerRegistry:
    """One record a worker, under its id."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = Bucket(connection, names.workers_bucket)

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store what ``change`` makes of the current record, asking it again whenever somebody else was quicker."""
        key = bucket_key(worker_id, field="worker_id")
        for _ in range(_MOST_TRIES):
            stored = await self._bucket.look(key, newest=True)
            changed = change(_record(stored.data))
            if changed is None:
                return None
            data = msgspec.json.encode(changed)
            try:
                await self._bucket.put(key, data, after=stored.revision)
            except ChangedError:
                continue
            return _decoder.decode(data)
        raise UnavailableError(f"the record of '{worker_id}' changed {_MOST_TRIES} times while it was to be written")

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """A worker's record; one that is no JSON object counts as none, and what can be no key has none."""
        try:
            key = bucket_key(worker_id, field="worker_id")
        except InvalidInputError:  # a snapshot that somebody else wrote may name anybody
            return None
        return _record((await self._bucket.look(key)).data)

    async def all(self) -> Sequence[WorkerRecord]:
        """All records, by worker id."""
        records = [_record(data) for data in (await self._bucket.all()).values()]
        return [record for record in records if record is not None]


def _record(data: bytes | None) -> WorkerRecord | None:
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.DecodeError:
        return None

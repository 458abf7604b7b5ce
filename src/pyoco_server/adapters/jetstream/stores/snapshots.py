"""Snapshots in a KV bucket: a write never replaces a newer position of the log, nor a snapshot that was not read."""

from collections.abc import Callable
from typing import Final

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.kv import NOTHING, Bucket, KvEntry
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.transport.error_translation import ChangedError
from pyoco_server.app.ports import ForeignSnapshotError, StoredSnapshot, UnavailableError, head_of
from pyoco_server.identifiers import TOKEN

_MOST_TRIES: Final = 50


class JetStreamSnapshots:
    """The newest snapshot of each run, under the run's id."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = Bucket(connection, names.runs_bucket)
        self._on_change: Callable[[int], None] = lambda _sequence: None

    def notify(self, on_change: Callable[[int], None]) -> None:
        """Call ``on_change`` with the sequence of every change made here, and of a newer one that was found instead."""
        self._on_change = on_change

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        """Store a snapshot unless one of a newer position is stored; return its revision, or None.

        With ``revision``, the caller guarantees that the snapshot of that revision is not newer, which saves a read.
        """
        key, is_first = TOKEN.checked(run_id, "run_id"), revision == 0
        for tries in range(_MOST_TRIES):
            if revision is None:
                stored = await self._bucket.look(key, newest=tries > 0)
                if _is_newer(run_id, stored, position) or (is_first and stored.is_forbidden):
                    self._on_change(stored.revision)
                    return None
                revision = stored.revision
            try:
                revision = await self._bucket.put(key, body, after=revision, is_urgent=is_urgent)
            except ChangedError:
                revision = None
                continue
            except UnavailableError as error:
                revision = await self._resolve_in_doubt(run_id, body, position, error)
            if revision is not None:
                self._on_change(revision)
            return revision
        raise UnavailableError(f"the snapshot of '{run_id}' changed {_MOST_TRIES} times while it was to be written")

    async def sync(self) -> None:
        """Return when everything stored is durable."""
        await self._bucket.sync()

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """Return the newest snapshot."""
        stored = await self._bucket.look(TOKEN.checked(run_id, "run_id"))
        if stored.data is None:
            return None
        return _stored(run_id, stored.data, stored.revision)

    async def forbid(self, run_id: str) -> bool:
        """Store a marker in place of the first snapshot; False if there is a snapshot."""
        key, stored = TOKEN.checked(run_id, "run_id"), NOTHING
        for _ in range(_MOST_TRIES):
            try:
                self._on_change(await self._bucket.forbid(key, after=stored.revision))
            except ChangedError:
                stored = await self._bucket.look(key, newest=True)
                if stored.data is not None or stored.is_forbidden:
                    return stored.data is None
                continue
            return True
        raise UnavailableError(f"the snapshot of '{run_id}' changed {_MOST_TRIES} times while it was to be forbidden")

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot."""
        key = TOKEN.checked(run_id, "run_id")
        if (await self._bucket.look(key, newest=True)).data is not None:
            self._on_change(await self._bucket.purge(key))

    async def _resolve_in_doubt(self, run_id: str, body: bytes, position: int, cause: UnavailableError) -> int | None:
        """Read back after a write of unknown outcome; it succeeded if the snapshot, or a newer one, is stored."""
        try:
            stored = await self._bucket.look(TOKEN.checked(run_id, "run_id"), newest=True)
        except UnavailableError:
            raise cause from None
        if stored.data == body:
            await self._bucket.sync()
            return stored.revision
        if _is_newer(run_id, stored, position):
            return None
        raise cause


def _stored(run_id: str, body: bytes, revision: int) -> StoredSnapshot:
    return StoredSnapshot(run_id, body, head_of(body).log_position, revision)


def _is_newer(run_id: str, entry: KvEntry, position: int) -> bool:
    """Return whether a newer position is stored; ForeignSnapshotError if another program stored one that is not."""
    if entry.data is None:
        return False
    head = head_of(entry.data)
    if head.log_position > position:
        return True
    if head.is_foreign:
        raise ForeignSnapshotError(_stored(run_id, entry.data, entry.revision))
    return False

"""Snapshots in a KV bucket: a newer position of the log is never overwritten by an older one, nor what was not read."""

from collections.abc import Callable
from typing import Final

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.kv import Bucket, Entry
from pyoco_server.adapters.jetstream.names import Names, subject_token
from pyoco_server.adapters.jetstream.translation import ChangedError
from pyoco_server.app.ports import ForeignSnapshotError, StoredSnapshot, UnavailableError, head_of

_MOST_TRIES: Final = 50


class JetStreamSnapshots:
    """The newest snapshot of each run, under its id."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = Bucket(connection, names.runs_bucket)
        self._on_change: Callable[[int], None] = lambda _sequence: None

    def notify(self, on_change: Callable[[int], None]) -> None:
        """Call ``on_change`` with the sequence of every change made here, and of a newer one that was found instead."""
        self._on_change = on_change

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        """Store a snapshot unless one of a newer position is there.

        Whoever gives a revision vouches that what is stored under it is not newer: it is not looked at again.
        """
        key = subject_token(run_id, field="run_id")
        for tries in range(_MOST_TRIES):
            if revision is None:
                stored = await self._bucket.look(key, newest=tries > 0)
                if _is_newer(run_id, stored, position):
                    self._on_change(stored.revision)
                    return None
                revision = stored.revision
            try:
                revision = await self._bucket.put(key, body, after=revision, is_urgent=is_urgent)
            except ChangedError:
                revision = None
                continue
            except UnavailableError as error:
                revision = await self._find_out(run_id, body, position, error)
            if revision is not None:
                self._on_change(revision)
            return revision
        raise UnavailableError(f"the snapshot of '{run_id}' changed {_MOST_TRIES} times while it was to be written")

    async def sync(self) -> None:
        """Return when all that is stored is durable."""
        await self._bucket.sync()

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """The newest snapshot."""
        stored = await self._bucket.look(subject_token(run_id, field="run_id"))
        if stored.data is None:
            return None
        return _stored(run_id, stored.data, stored.revision)

    async def forbid(self, run_id: str) -> bool:
        """Leave a mark where the first snapshot would be; False if there is one."""
        key = subject_token(run_id, field="run_id")
        try:
            self._on_change(await self._bucket.mark_removed(key))
        except ChangedError:
            return (await self._bucket.look(key, newest=True)).data is None
        return True

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot."""
        key = subject_token(run_id, field="run_id")
        if (await self._bucket.look(key, newest=True)).data is not None:
            self._on_change(await self._bucket.purge(key))

    async def _find_out(self, run_id: str, body: bytes, position: int, cause: UnavailableError) -> int | None:
        """Read back after a write of unknown outcome: fine if the snapshot is there, or one of a newer position."""
        try:
            stored = await self._bucket.look(subject_token(run_id, field="run_id"), newest=True)
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


def _is_newer(run_id: str, entry: Entry, position: int) -> bool:
    """Is a snapshot of a newer position stored? ForeignSnapshotError if another program wrote one that is not."""
    if entry.data is None:
        return False
    head = head_of(entry.data)
    if head.log_position > position:
        return True
    if head.is_foreign:
        raise ForeignSnapshotError(_stored(run_id, entry.data, entry.revision))
    return False

"""The read index as the RunIndex port: all SQLite work happens in threads, so the event loop never waits for it."""

import asyncio
import queue
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from pyoco_server.adapters.sqlite_index import counts as tallying
from pyoco_server.adapters.sqlite_index import latencies, paging
from pyoco_server.adapters.sqlite_index import queries as reading
from pyoco_server.adapters.sqlite_index.schema import (
    IN_MEMORY,
    WAL_BYTES,
    checkpoint,
    open_reader,
    open_writer,
    wal_bytes,
)
from pyoco_server.adapters.sqlite_index.writer import Writer
from pyoco_server.app.ports import (
    DueWait,
    IndexedRun,
    Latencies,
    RunFilter,
    RunQuery,
    RunTally,
    SilentRun,
    SnapshotChange,
    TenantUsage,
    UnavailableError,
)

P = ParamSpec("P")
R = TypeVar("R")

READERS: Final = 2
MOST_WAL_BYTES: Final = 2 * WAL_BYTES
"""The write-ahead log is emptied when a change leaves it larger than this."""


class SqliteRunIndex:
    """Keeps the data of lists in a SQLite file, or in memory.

    One thread with one connection writes. Readers have threads and connections of their own and see what was committed
    before they began; in memory there is only one connection, which they share with the writer.
    """

    def __init__(self, path: Path | str = IN_MEMORY) -> None:
        """Open or create the file. A damaged file, or one of another version, is replaced.

        InvalidInputError if the path holds another kind of file, or cannot be written.
        """
        self._path = str(path)
        self._connections = [open_writer(self._path)]
        self._writer = Writer(self._connections[0])
        self._writing = self._reading = ThreadPoolExecutor(1, thread_name_prefix="run-index-writer")
        if self._path != IN_MEMORY:
            self._connections += [open_reader(self._path) for _ in range(READERS)]
            self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="run-index-reader")
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        for connection in self._connections[-READERS:]:
            self._readers.put(connection)

    async def position(self) -> int:
        """Return the position in the feed up to which the index is up to date."""
        return (await self._look(reading.feed))[1]

    async def origin(self) -> str:
        """Return which snapshots the index was made from."""
        return (await self._look(reading.feed))[0]

    async def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        """Apply changes, and store that the index is up to date up to ``position``."""
        await self._write(self._writer.apply, changes, position)

    async def compared(self) -> str:
        """Return the state of the stores up to which they were compared; empty if they were not."""
        return await self._look(reading.compared)

    async def note_compared(self, state: str) -> None:
        """Store that the log and what is derived from it agree in this state of the stores."""
        await self._write(self._writer.note_compared, state)

    async def unknown(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Return those of these runs that the index does not have."""
        return await self._read(reading.unknown, run_ids)

    async def forget(self, before: int) -> None:
        """Remove the runs whose newest change is older than this sequence."""
        await self._write(self._writer.forget, before)

    async def clear(self, origin: str = "") -> None:
        """Remove everything."""
        await self._write(self._writer.clear, origin)

    async def page(self, query: RunQuery) -> Sequence[IndexedRun]:
        """Return the newest runs that match."""
        return await self._read(paging.page, query)

    async def counts(self, tenant_id: str | None = None) -> Mapping[str, int]:
        """Count the runs by status."""
        return await self._read(reading.counts, tenant_id)

    async def held_count(self, tenant_id: str | None = None) -> int:
        """Return how many runs are held because no worker has the code they need next."""
        return await self._read(reading.held_count, tenant_id)

    async def tally(self, wanted: RunFilter) -> RunTally:
        """Count the runs that match, by status."""
        return await self._read(tallying.tally, wanted)

    async def tags(self, status: str, tenant_id: str | None = None, *, limit: int = 50) -> Mapping[str, int]:
        """Return the tags of the runs that have this status, with the number of runs."""
        return await self._read(tallying.tags, status, tenant_id, limit)

    async def among(self, run_ids: Sequence[str], wanted: RunFilter) -> Sequence[IndexedRun]:
        """Return those of these runs that match."""
        return await self._read(tallying.among, run_ids, wanted)

    async def redriven(self, run_ids: Sequence[str], tenant_id: str | None = None) -> Mapping[str, Sequence[str]]:
        """Return the runs that repeat these."""
        return await self._read(reading.redriven, run_ids, tenant_id)

    async def latencies(self, tenant_id: str | None = None) -> Latencies:
        """Return histograms of how long runs took."""
        return await self._read(latencies.latencies, tenant_id)

    async def submitted_on_day_of(self, moment: float, tenant_id: str | None = None) -> int:
        """Count the existing runs that were submitted on this day (UTC)."""
        return await self._read(reading.submitted_on_day_of, moment, tenant_id)

    async def usage(self, tenant_id: str, since: float) -> TenantUsage:
        """Return what the runs of a tenant use."""
        return await self._read(reading.usage, tenant_id, since)

    async def due(self, now: float, limit: int = 100) -> Sequence[DueWait]:
        """Return the waits past their deadline."""
        return await self._read(reading.due, now, limit)

    async def silent(
        self, since: float, limit: int = 100, *, after: tuple[float, int] | None = None
    ) -> Sequence[SilentRun]:
        """Return the runs without a recent heartbeat."""
        return await self._read(reading.silent, since, limit, after)

    async def close(self) -> None:
        """Finish the work that has begun, and close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._reading.shutdown()
        self._writing.shutdown()
        for connection in reversed(self._connections):
            connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _write(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        def write() -> R:
            done = _translated(lambda: work(*args, **kwargs))
            _translated(self._bound_wal)
            return done

        return await asyncio.get_running_loop().run_in_executor(self._writing, write)

    def _bound_wal(self) -> None:
        """Empty the write-ahead log if it is too large, while no reader is active: a reader can prevent it."""
        if self._path == IN_MEMORY or wal_bytes(self._path) <= MOST_WAL_BYTES:
            return
        readers = [self._readers.get() for _ in range(READERS)]  # each as soon as its query is done
        try:
            checkpoint(self._connections[0])
        finally:
            for reader in readers:
                self._readers.put(reader)

    async def _read(self, ask: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        while True:
            if self._writer.is_loading:
                await self._write(self._writer.finish)
            try:
                return await self._look(ask, *args, **kwargs)
            except UnavailableError:
                if not self._writer.is_loading:
                    raise

    async def _look(self, ask: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a query that also works during a load."""

        def read() -> R:
            connection = self._readers.get()
            try:
                return _translated(lambda: ask(connection, *args, **kwargs))
            finally:
                self._readers.put(connection)

        return await asyncio.get_running_loop().run_in_executor(self._reading, read)


def _translated(work: Callable[[], R]) -> R:
    """Do the work; a full or broken disk becomes an UnavailableError."""
    try:
        return work()
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        raise UnavailableError(f"the run index cannot be used: {error}") from error

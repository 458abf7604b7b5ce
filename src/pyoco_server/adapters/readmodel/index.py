"""The read index as the rest of the program sees it: never in the way of the event loop."""

import asyncio
import queue
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from pyoco_server.adapters.readmodel import latencies, paging, reading, tallying
from pyoco_server.adapters.readmodel.schema import (
    IN_MEMORY,
    WAL_BYTES,
    checkpoint,
    open_reader,
    open_writer,
    wal_bytes,
)
from pyoco_server.adapters.readmodel.writing import Writer
from pyoco_server.app.ports import (
    DueWait,
    IndexedRun,
    Latencies,
    RunFilter,
    RunQuery,
    SilentRun,
    SnapshotChange,
    Tally,
    UnavailableError,
)

P = ParamSpec("P")
R = TypeVar("R")

READERS: Final = 2
MOST_WAL_BYTES: Final = 2 * WAL_BYTES
"""The write-ahead log is emptied when a change leaves it larger than this."""


class SqliteRunIndex:
    """Keeps what lists need in a SQLite file, or in memory.

    All writing is done in one thread, with one connection. Readers have threads and connections of their own and see
    what was committed before they began; in memory there is one connection, and they take turns with the writer.
    """

    def __init__(self, path: Path | str = IN_MEMORY) -> None:
        """Open the file, or make it. A file of another version or a damaged one is made anew.

        InvalidInputError if there is something else in its place, or it cannot be written there.
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
        """Up to where in the feed it is up to date."""
        return (await self._look(reading.feed))[1]

    async def origin(self) -> str:
        """Which snapshots it was made from."""
        return (await self._look(reading.feed))[0]

    async def apply(self, changes: Sequence[SnapshotChange], position: int) -> None:
        """Take changes, and remember that it is up to date up to ``position``."""
        await self._write(self._writer.apply, changes, position)

    async def forget(self, before: int) -> None:
        """Remove the runs whose newest change is older than this sequence."""
        await self._write(self._writer.forget, before)

    async def clear(self, origin: str = "") -> None:
        """Forget everything."""
        await self._write(self._writer.clear, origin)

    async def page(self, query: RunQuery) -> Sequence[IndexedRun]:
        """The newest runs that fit."""
        return await self._read(paging.page, query)

    async def counts(self, tenant_id: str | None = None) -> Mapping[str, int]:
        """How many runs have which status."""
        return await self._read(reading.counts, tenant_id)

    async def held_count(self, tenant_id: str | None = None) -> int:
        """Return how many runs are held because no worker has the code they need next."""
        return await self._read(reading.held_count, tenant_id)

    async def tally(self, wanted: RunFilter) -> Tally:
        """How many of the runs that fit have which status."""
        return await self._read(tallying.tally, wanted)

    async def tags(self, status: str, tenant_id: str | None = None, limit: int = 50) -> Mapping[str, int]:
        """The tags of the runs that have this status."""
        return await self._read(tallying.tags, status, tenant_id, limit)

    async def among(self, run_ids: Sequence[str], wanted: RunFilter) -> Sequence[IndexedRun]:
        """Those of these runs that fit."""
        return await self._read(tallying.among, run_ids, wanted)

    async def latencies(self, tenant_id: str | None = None) -> Latencies:
        """How long runs took."""
        return await self._read(latencies.latencies, tenant_id)

    async def submitted_on_day_of(self, moment: float, tenant_id: str | None = None) -> int:
        """How many of the runs there are were submitted on this day (UTC)."""
        return await self._read(reading.submitted_on_day_of, moment, tenant_id)

    async def due(self, now: float, limit: int = 100) -> Sequence[DueWait]:
        """Waits past their deadline."""
        return await self._read(reading.due, now, limit)

    async def silent(
        self, since: float, limit: int = 100, *, after: tuple[float, int] | None = None
    ) -> Sequence[SilentRun]:
        """Runs without a sign of life."""
        return await self._read(reading.silent, since, limit, after)

    async def close(self) -> None:
        """Finish what was begun and let go of the file."""
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
        """Empty the write-ahead log if it has become too large, without readers: they can keep SQLite from doing so."""
        if self._path == IN_MEMORY or wal_bytes(self._path) <= MOST_WAL_BYTES:
            return
        readers = [self._readers.get() for _ in range(READERS)]  # each as soon as its question is answered
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
        """Read what can be read in the midst of a load, too."""

        def read() -> R:
            connection = self._readers.get()
            try:
                return _translated(lambda: ask(connection, *args, **kwargs))
            finally:
                self._readers.put(connection)

        return await asyncio.get_running_loop().run_in_executor(self._reading, read)


def _translated(work: Callable[[], R]) -> R:
    """Within this, a disk that is full or broken is an UnavailableError."""
    try:
        return work()
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.DatabaseError as error:
        raise UnavailableError(f"the run index cannot be used: {error}") from error

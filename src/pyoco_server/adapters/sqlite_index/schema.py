"""The tables and indexes of the file, and how the file is opened.

Runs are listed by (submitted_at, run_id). The runs that share a tenant, a flow, a status and a tag are a *cell*. There
is one index for each combination of tenant and flow given or not, in which the runs of a cell are contiguous and in
list order; a page is merged from the cells that match, and reads a few runs of each, however many there are. A table
holds the number of runs of each cell, which also gives the counts by status; another holds the number of runs
submitted on each day, and their bytes. Runs submitted with their workflow are also listed by its hash; runs that are
held for missing code, and runs that repeat another one, have an index of their own. Durations are counted by class when
runs end, and stay counted when runs are removed. An index for each set of filters would need no merging, but every run
would be written to four times as many places.

Texts that many runs share are stored once, as numbered *terms*, so that the indexes stay small; 0 stands for none.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyoco_server.adapters.private_files import private_file
from pyoco_server.errors import InvalidInputError

SCHEMA_VERSION: Final = 6
"""A file of another version is replaced: its content can be read from the snapshots again."""

IN_MEMORY: Final = ":memory:"
NOTHING: Final = 0
"""The number of no text. In cells: of any tenant, or of any flow."""

_APPLICATION_ID: Final = 0x50594F49
_MAGIC: Final = b"SQLite format 3\0"
_APPLICATION_ID_AT: Final = slice(68, 72)
_BUSY_SEC: Final = 10.0
_CACHE_KIB: Final = 32 * 1024
WAL_BYTES: Final = 16 * 1024 * 1024
"""The size at which the write-ahead log is copied into the file: large enough that changes share pages."""
_PAGE_BYTES: Final = 4096

LONGEST_SPAN: Final = 40
"""The class of runs that took 2**39 seconds or more, as those with a wrong clock did."""

_TABLES: Final = """
CREATE TABLE feed (origin TEXT NOT NULL, position INTEGER NOT NULL, compared TEXT NOT NULL);
INSERT INTO feed VALUES ('', 0, '');

CREATE TABLE terms (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    span INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    flow INTEGER NOT NULL,
    status INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    yaml INTEGER,
    held INTEGER,
    redrive_of TEXT,
    alive_at REAL,
    size INTEGER NOT NULL,
    summary BLOB NOT NULL
);
CREATE INDEX runs_by_id ON runs (run_id, submitted_at, tenant);

CREATE TABLE spans (span INTEGER PRIMARY KEY, shorter_than REAL NOT NULL);

CREATE TABLE waits (run INTEGER, node_id TEXT, deadline REAL NOT NULL, PRIMARY KEY (run, node_id)) WITHOUT ROWID;
CREATE INDEX waits_by_deadline ON waits (deadline);

CREATE TABLE cells (
    tenant INTEGER,
    flow INTEGER,
    status INTEGER,
    tag INTEGER,
    runs INTEGER NOT NULL,
    PRIMARY KEY (tenant, flow, status, tag)
) WITHOUT ROWID;

CREATE TABLE days (
    tenant INTEGER,
    day INTEGER,
    runs INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) WITHOUT ROWID;

CREATE TABLE latencies (
    tenant INTEGER,
    kind INTEGER,
    class INTEGER,
    runs INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (tenant, kind, class)
) WITHOUT ROWID;
"""

_INDEXES: Final = {
    "runs_by_sequence": "(sequence)",
    "runs_by_span": "(span, submitted_at)",
    "runs_by_life": "(alive_at) WHERE alive_at IS NOT NULL",
    "runs_listed": "(status, tag, submitted_at, run_id)",
    "runs_listed_tenant": "(tenant, status, tag, submitted_at, run_id)",
    "runs_listed_flow": "(flow, status, tag, submitted_at, run_id)",
    "runs_listed_tenant_flow": "(tenant, flow, status, tag, submitted_at, run_id)",
    "runs_listed_held": "(held, flow, status, tag, submitted_at, run_id) WHERE held IS NOT NULL",
    "runs_listed_tenant_held": "(tenant, held, flow, status, tag, submitted_at, run_id) WHERE held IS NOT NULL",
    "runs_by_redrive": "(redrive_of, submitted_at) WHERE redrive_of IS NOT NULL",
    "runs_listed_yaml": "(yaml, flow, status, tag, submitted_at, run_id) WHERE yaml IS NOT NULL",
    "runs_listed_tenant_yaml": "(tenant, yaml, flow, status, tag, submitted_at, run_id) WHERE yaml IS NOT NULL",
}
"""Indexes that only readers need. To make them for many runs at once costs a third of keeping them up to date."""

_UNFINISHED: Final = -SCHEMA_VERSION
"""The version of a file without these indexes: this version continues the load, and other versions replace the file."""


def span_of(duration_sec: float) -> int:
    """Return the class of a duration: 0 below a second, then one for each doubling."""
    return min(int(duration_sec).bit_length(), LONGEST_SPAN) if duration_sec > 0 else 0


def open_writer(path: str) -> sqlite3.Connection:
    """Open or create the file; InvalidInputError if it is another kind of file, which must not be replaced."""
    try:
        connection = _connect_if_usable(path)
        if connection is None:
            _discard(path)
            connection = _create(path)
        else:
            checkpoint(connection)  # a killed process may have left a large log
    except sqlite3.OperationalError as error:
        raise InvalidInputError(f"the run index cannot be kept in '{path}': {error}") from error
    return connection


def drop_indexes(connection: sqlite3.Connection) -> None:
    """Drop the indexes that only readers need, in the current transaction."""
    for name in _INDEXES:
        connection.execute(f"DROP INDEX IF EXISTS {name}")
    connection.execute(f"PRAGMA user_version = {_UNFINISHED}")


def lacks_indexes(connection: sqlite3.Connection) -> bool:
    """Return whether the last writer left these indexes out."""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return bool(version == _UNFINISHED)


def make_indexes(connection: sqlite3.Connection) -> None:
    """Make the missing indexes, in the current transaction."""
    for name, columns in _INDEXES.items():
        connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON runs {columns}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def wal_bytes(path: str) -> int:
    """Return the current size of the file's write-ahead log."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the file and empty it; does nothing while another connection reads."""
    with contextlib.suppress(sqlite3.OperationalError):  # such as a full disk: the next write raises it
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def open_reader(path: str) -> sqlite3.Connection:
    """Open another connection, which only reads."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: str) -> sqlite3.Connection:
    # Each connection serves one thread at a time, though not always the same one.
    if path != IN_MEMORY:
        with contextlib.suppress(OSError):  # SQLite reports it; its other files get the rights of this one
            private_file(Path(path))
    connection = sqlite3.connect(path, timeout=_BUSY_SEC, isolation_level=None, check_same_thread=False)
    with _closed_on_error(connection):
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // _PAGE_BYTES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    return connection


def _connect_if_usable(path: str) -> sqlite3.Connection | None:
    try:
        connection = _connect(path)
        with _closed_on_error(connection):
            found = [connection.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("application_id", "user_version")]
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:  # damaged, or no database
        return None
    if found in ([_APPLICATION_ID, SCHEMA_VERSION], [_APPLICATION_ID, _UNFINISHED]):
        return connection
    connection.close()
    return None


def _create(path: str) -> sqlite3.Connection:
    connection = _connect(path)
    with _closed_on_error(connection):
        # First the mark that the file is ours: a process that dies halfway leaves a file that may be replaced.
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {_TABLES}")
        spans = [*((span, 1 << span) for span in range(LONGEST_SPAN)), (LONGEST_SPAN, 1e300)]
        connection.executemany("INSERT INTO spans VALUES (?, ?)", spans)
        make_indexes(connection)
        connection.execute("COMMIT")
    return connection


@contextlib.contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _discard(path: str) -> None:
    """Remove an index that cannot be used; refuse to remove any other file."""
    if path == IN_MEMORY:
        return
    file = Path(path)
    with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
        head = opened.read(100)
        ours = head[_APPLICATION_ID_AT] == _APPLICATION_ID.to_bytes(4, "big")
        if head and not (head.startswith(_MAGIC) and ours):
            raise InvalidInputError(
                f"the run index cannot be kept in '{path}': that file is something else; choose another place"
            )
    for name in (file, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)

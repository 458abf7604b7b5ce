"""How the index is laid out in its file, and how the file is opened.

Runs are listed by (submitted_at, run_id). The runs that share a tenant, a flow, a status and a tag are a cell. There is
an index for each of tenant and flow given or not, in which each cell lies in one piece and in that order; a page is
merged from the cells that fit, reading a few runs of each, however many there are. How many runs a cell has is kept in
a table of its own, which also answers how many runs have which status; and so is how many were submitted on each day.
Runs that were submitted with their workflow are listed by its hash as well, and runs that are held for missing code in
a list of their own. How long runs took is counted by class when they end, and stays counted when they are gone.

An index for each set of filters would save the merging, but every run would be written to four times as many places.
Texts that many runs share are kept once, as terms, and numbered, so that the indexes stay small; 0 stands for none.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyoco_server.errors import InvalidInputError

SCHEMA_VERSION: Final = 4
"""A file of another version is thrown away: what is in it can be read from the snapshots again."""

IN_MEMORY: Final = ":memory:"
NOTHING: Final = 0
"""The number of no text. In cells: of any tenant, or of any flow."""

_APPLICATION_ID: Final = 0x50594F49
_MAGIC: Final = b"SQLite format 3\0"
_APPLICATION_ID_AT: Final = slice(68, 72)
_BUSY_SEC: Final = 10.0
_CACHE_KIB: Final = 32 * 1024
WAL_BYTES: Final = 16 * 1024 * 1024
"""How large the write-ahead log becomes before it is copied into the file: large enough that changes share pages."""
_PAGE_BYTES: Final = 4096

LONGEST_SPAN: Final = 40
"""The class of runs that took 2**39 seconds or more, as those with a wrong clock did."""

_TABLES: Final = """
CREATE TABLE feed (origin TEXT NOT NULL, position INTEGER NOT NULL);
INSERT INTO feed VALUES ('', 0);

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
    alive_at REAL,
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

CREATE TABLE days (tenant INTEGER, day INTEGER, runs INTEGER NOT NULL, PRIMARY KEY (tenant, day)) WITHOUT ROWID;

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
    "runs_listed_yaml": "(yaml, flow, status, tag, submitted_at, run_id) WHERE yaml IS NOT NULL",
    "runs_listed_tenant_yaml": "(tenant, yaml, flow, status, tag, submitted_at, run_id) WHERE yaml IS NOT NULL",
}
"""What only those who read need. Made for many runs at once, they cost a third of what keeping them up to date does."""

_UNFINISHED: Final = -SCHEMA_VERSION
"""The version of a file that lacks them: whoever finds it goes on loading it, and others make it anew."""


def span_of(duration_sec: float) -> int:
    """The class of runs that took about as long: 0 below a second, then one for each doubling."""
    return min(int(duration_sec).bit_length(), LONGEST_SPAN) if duration_sec > 0 else 0


def open_writer(path: str) -> sqlite3.Connection:
    """Open the file, or make it; InvalidInputError if there is something in it that is not ours to throw away."""
    try:
        connection = _connect_if_usable(path)
        if connection is None:
            _discard(path)
            connection = _create(path)
        else:
            checkpoint(connection)  # a process that was killed may have left much in the log
    except sqlite3.OperationalError as error:
        raise InvalidInputError(f"the run index cannot be kept in '{path}': {error}") from error
    return connection


def drop_indexes(connection: sqlite3.Connection) -> None:
    """Leave out of the file what only readers need, in the transaction that goes on."""
    for name in _INDEXES:
        connection.execute(f"DROP INDEX IF EXISTS {name}")
    connection.execute(f"PRAGMA user_version = {_UNFINISHED}")


def lacks_indexes(connection: sqlite3.Connection) -> bool:
    """Was it left so, by whoever wrote to the file before?"""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return bool(version == _UNFINISHED)


def make_indexes(connection: sqlite3.Connection) -> None:
    """Make the file whole, in the transaction that goes on."""
    for name, columns in _INDEXES.items():
        connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON runs {columns}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def wal_bytes(path: str) -> int:
    """How large the write-ahead log of the file is now."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the file and empty it; nothing happens while another connection is reading."""
    with contextlib.suppress(sqlite3.OperationalError):  # a full disk, say: whoever writes next is told of it
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def open_reader(path: str) -> sqlite3.Connection:
    """One more connection, which only reads."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: str) -> sqlite3.Connection:
    # Each connection serves one thread at a time, though not always the same one.
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
        # First of all the mark that it is ours: whoever dies halfway leaves a file that may be thrown away.
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
    """Remove an index that cannot be used; nobody's data but ours."""
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

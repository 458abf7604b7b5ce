"""The read index: queries about many runs, in SQLite. It is derived data, and is rebuilt when in doubt."""

from pyoco_server.adapters.sqlite_index.index import SqliteRunIndex

__all__ = ["SqliteRunIndex"]

"""The read index: what is asked about many runs, in SQLite. It is derived, and made anew when in doubt."""

from pyoco_server.adapters.readmodel.index import SqliteRunIndex

__all__ = ["SqliteRunIndex"]

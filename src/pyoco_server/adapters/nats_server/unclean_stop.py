"""A mark in the data directory that shows at the next start whether the server was stopped cleanly.

nats-server replaces blocks of a stream by renaming unsynced files. On some file systems a power loss then leaves an
empty block (``policy.keeps_renamed_files``). A clean stop syncs all files before it removes the mark. So without a
mark, the blocks are whole; with one, what is derived from the log must be compared with it.
"""

import os
from pathlib import Path
from typing import Final

_TEXT: Final = b"""\
A NATS server is using this directory, or was not stopped cleanly. Leave this file where it is: it makes the next start
check what a power loss may have destroyed.
"""


class UncleanStopMark:
    """The mark of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "unclean-stop"

    def is_set(self) -> bool:
        """Return whether the last server here is running, or was not stopped cleanly."""
        return self._path.exists()

    def set(self) -> None:
        """Set the mark; it is on the disk when this returns."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_TEXT)
            file.flush()
            os.fsync(file.fileno())
        _sync(self._data_dir)

    def clear(self, *, synced_first: Path | None) -> None:
        """Sync all files below ``synced_first`` and remove the mark; OSError if it stays. No server may be running."""
        if synced_first is not None:
            for directory, _, files in os.walk(synced_first, topdown=False):
                for name in files:
                    _sync(Path(directory, name))
                _sync(Path(directory))
        self._path.unlink(missing_ok=True)
        _sync(self._data_dir)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

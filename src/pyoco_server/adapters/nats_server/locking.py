"""A lock that cannot be left behind: the system lets go of it when the last process that has it open is gone."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class FileLock:
    """An exclusive lock on a file, which is there only while somebody holds it, or died holding it.

    A child process that inherits ``fd`` holds the lock too, and goes on holding it if we die.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def is_held(self) -> bool:
        """Is it ours?"""
        return self._fd is not None

    @property
    def fd(self) -> int:
        """The open file, while the lock is held."""
        if self._fd is None:
            raise RuntimeError(f"The lock '{self._path}' is not held.")
        return self._fd

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it. Raises ``OSError`` if the file cannot be made or locked at all."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever let go of it has removed the file: then the lock we got is on a file nobody else will find.
            if os.path.samestat(os.fstat(fd), os.stat(self._path)):  # noqa: PTH116 (beside fstat)
                fd, self._fd = -1, fd
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            if fd >= 0:
                os.close(fd)
        return False

    def write(self, content: bytes) -> None:
        """Leave a note for those who find the lock taken."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)

    def note(self) -> bytes:
        """What the holder wrote; nothing if there is none."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def release(self) -> None:
        """Let go of the lock, for heirs of the open file as well, and remove the file; no matter if it is not held."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with suppress(OSError):  # an empty promise left behind is no harm, a lock that stays would be
            self._path.unlink()
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

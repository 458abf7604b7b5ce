"""A small file system of its own for the data of a NATS server, which can be filled up."""

import contextlib
import os
from pathlib import Path
from typing import Final

from chaos.commands import run
from chaos.errors import NotPossibleError

SIZE: Final = "512m"


class Disk:
    """A file system in memory, mounted on a directory; only root may do that."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "pyoco-chaos", str(path))
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room; if somebody takes what is left meanwhile, then so be it."""
        with self._ballast.open("wb") as file, contextlib.suppress(OSError):
            while left := os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), left)

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; what was in it is gone."""
        run("umount", "--lazy", str(self.path))


def disk_at(path: Path) -> Disk | None:
    """A disk of its own; None where that is not possible."""
    try:
        return Disk(path)
    except NotPossibleError:
        return None

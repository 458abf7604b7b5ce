"""What chaos needs of this machine: programs of the system, and small file systems that can be filled."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SIZE: Final = "512m"


class NotPossibleError(Exception):
    """Raised when this machine or user cannot do what was requested; the text says why."""


def run(*words: str) -> str:
    """Run a program and return what it printed; NotPossibleError if it is not there or fails."""
    program = shutil.which(words[0])
    if program is None:
        raise NotPossibleError(f"there is no program '{words[0]}'")
    done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)  # noqa: S603 our own words
    if done.returncode != 0:
        raise NotPossibleError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Disk:
    """A file system in memory, mounted on a directory; only root may do that."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "pyoco-chaos", str(path))
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Fill the disk. Another process may use the last blocks first."""
        with self._ballast.open("wb") as file, contextlib.suppress(OSError):
            while left := os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), left)

    def free(self) -> None:
        """Free the space."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; what was in it is gone."""
        run("umount", "--lazy", str(self.path))


def disk_at(path: Path) -> Disk | None:
    """Mount a disk; None where that is not possible."""
    try:
        return Disk(path)
    except NotPossibleError:
        return None

"""Names the file system below a directory."""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

MOUNTS: Final = Path("/proc/self/mountinfo")
UNKNOWN: Final = "unknown"

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class FileSystem(NamedTuple):
    """A file system, and how it is mounted."""

    name: str
    """As Linux names it: ext4, xfs, fuse.sshfs; ``unknown`` elsewhere."""
    mount_point: str
    options: frozenset[str]


def file_system_of(directory: Path, *, mounts: Path = MOUNTS) -> FileSystem:
    """Return the file system of a directory, which need not exist yet."""
    found = FileSystem(UNKNOWN, "/", frozenset())
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return found
    path = os.path.realpath(directory)
    for line in lines:
        mounted = _parsed(line)
        # The last of two mounts at the same place covers the first.
        if mounted is not None and _is_below(path, mounted.mount_point) >= _is_below(path, found.mount_point):
            found = mounted
    return found


def _is_below(path: str, mount_point: str) -> int:
    """Return how specific a mount point is for a path; -1 if the path is not below it."""
    below = mount_point.rstrip("/") + "/"
    return len(below) if f"{path}/".startswith(below) else -1


def _parsed(line: str) -> FileSystem | None:
    """Read a line: see proc_pid_mountinfo(5)."""
    before, separator, after = line.partition(" - ")
    fields, described = before.split(" "), after.split(" ")
    if not separator or len(fields) < 6 or len(described) < 1:
        return None
    options = {*fields[5].split(","), *described[-1].split(",")}
    return FileSystem(described[0], _unescaped(fields[4]), frozenset(options))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)

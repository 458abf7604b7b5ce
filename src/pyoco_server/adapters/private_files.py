"""Directories and files that only their owner may use: a data directory, what is in it, and what is written later.

Logs, results and keys must not be readable for the other users of a machine. A directory that an earlier version left
open is closed, and so is every file in it. Nothing is changed that other users need or own: a directory such as /tmp or
a home directory stays as it is, and so do links and the files of other users.
"""

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OF_OTHERS: Final = 0o077


def private_directory(path: Path) -> None:
    """Make a directory that only its owner may enter; if it exists, close it and everything in it, and log that."""
    path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    reason = _why_shared(path)
    if reason is not None:
        if path.stat().st_mode & _OF_OTHERS:
            _log.warning(
                "other users can enter '%s', which is not changed (%s): choose a directory of its own",
                path,
                reason,
                extra={"action": "directory_shared", "path": str(path)},
            )
        return
    closed = close_to_others(path)
    if closed:
        _log.warning(
            "'%s' was open to other users: %d directories and files in it are now private (0700, 0600)",
            path,
            closed,
            extra={"action": "directory_closed", "path": str(path), "count": closed},
        )


def private_file(path: Path) -> None:
    """Make an empty file that only its owner may read, unless there is a file."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def write_once(path: Path, text: str) -> None:
    """Write a private file, complete and durable, in a private directory; a file that is there stays."""
    if path.exists():
        return
    private_directory(path.parent)
    written = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(written, path)  # all of it at once, and never over a file that another process has just written
    except FileExistsError:
        return
    finally:
        written.unlink()
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable: what depends on a file must not outlive it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def close_to_others(top: Path) -> int:
    """Take the rights of other users from a directory and everything in it; return how many had any."""
    return sum(map(_close, _top_first(top)))


def _top_first(top: Path) -> Iterator[Path]:
    yield top
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            yield Path(folder) / name


def _close(path: Path) -> bool:
    """Return whether other users had rights, which they lose; links and files of other users are left alone."""
    try:
        if not _is_to_close(os.lstat(path)):
            return False
        # By its descriptor: another user could replace the name by a link meanwhile.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # a server of an earlier start has just removed it
        return False
    except OSError as error:
        return _not_closed(path, error)
    try:
        found = os.fstat(fd)
        if not _is_to_close(found):
            return False
        os.fchmod(fd, stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)
    except OSError as error:
        return _not_closed(path, error)
    finally:
        os.close(fd)
    return True


def _is_to_close(found: os.stat_result) -> bool:
    """Return whether this is ours and open; a file with a second name may be one that others need."""
    is_ours = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & _OF_OTHERS
    return bool(is_ours) and (stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1))


def _not_closed(path: Path, error: OSError) -> bool:
    _log.warning("'%s' stays open to other users: %s", path, error.strerror, extra={"action": "file_not_closed"})
    return False


def _why_shared(path: Path) -> str | None:
    """Return why the directory must not be closed; None if it is ours alone."""
    found, where = path.stat(), path.resolve()
    if found.st_uid != os.geteuid():
        return "another user owns it"
    if found.st_mode & stat.S_ISVTX:
        return "it is shared, like /tmp"
    if where == Path(where.anchor) or where == Path(os.path.expanduser("~")).resolve():  # noqa: PTH111 no error without a home
        return "it is a home directory, or the root of all"
    return None

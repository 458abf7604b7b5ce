"""The key that signs pickled results: from the settings, or from the file the embedded platform keeps it in.

Only workers have it. A gateway never loads a pickle, and never reads the key.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from pyoco_server.adapters.private_files import private_directory
from pyoco_server.errors import InvalidInputError
from pyoco_server.settings import Settings
from pyoco_server.settings.values import SHORTEST_KEY

FILE_NAME: Final = "result.key"


def create_result_key(data_dir: Path) -> None:
    """Write a new key into the data directory, readable for its owner only; one that is there stays."""
    path = data_dir / FILE_NAME
    if path.exists():
        return
    private_directory(data_dir)
    written = data_dir / f"{FILE_NAME}.{secrets.token_hex(4)}"
    fd = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(written, path)  # all of it at once, and never over a key that another process has just written
    except FileExistsError:
        return
    finally:
        written.unlink()
    _sync_directory(data_dir)


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable: results that are signed with a key must not outlive it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def result_key(settings: Settings) -> bytes | None:
    """Return PYOCO_RESULT_KEY, or the key in PYOCO_DATA_DIR; None if there is neither.

    InvalidInputError if the file cannot be read or holds no key.
    """
    given = settings.worker.result_key
    if given is not None and given.get_secret_value():
        return given.get_secret_value().encode()
    path = Path(settings.storage.data_dir) / FILE_NAME
    try:
        key = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: the key for pickled results cannot be read: {error}") from error
    if len(key) < SHORTEST_KEY:
        raise InvalidInputError(
            f"{path}: the key for pickled results has fewer than {SHORTEST_KEY} characters; restore the file, or "
            "remove it and start the server again to make a new one (results pickled before are lost then)"
        )
    return key.encode()

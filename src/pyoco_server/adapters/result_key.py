"""The key that signs pickled results: from the settings, or from the file the embedded platform keeps it in.

Only workers have it. A gateway never loads a pickle, and never reads the key.
"""

import secrets
from pathlib import Path
from typing import Final

from pyoco_server.adapters.private_files import write_once
from pyoco_server.errors import InvalidInputError
from pyoco_server.settings import Settings
from pyoco_server.settings.values import SHORTEST_KEY

FILE_NAME: Final = "result.key"


def create_result_key(data_dir: Path) -> None:
    """Write a new key into the data directory, readable for its owner only; one that is there stays."""
    write_once(data_dir / FILE_NAME, f"{secrets.token_hex(32)}\n")


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

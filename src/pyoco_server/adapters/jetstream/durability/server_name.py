"""The name of an embedded NATS server says that its clients must sync its store, and where the store is.

The server sends its name to every client that connects, before the client can store anything; so no client can miss it,
however often the server restarts. The name is new at every start, and is in the configuration file beside the store: a
client that finds it there has the right directory, and not one of the same path on another machine.
"""

from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote
from uuid import uuid4

CONFIGURATION: Final = "nats-server.conf"
"""The name of the configuration file, in the data directory of the server."""

_MARK: Final = "pyoco-synced-by-clients:"


def streams_below(data_dir: Path) -> Path:
    """Return where a server with that data directory keeps its streams."""
    return data_dir / "jetstream" / "$G" / "streams"


def name_for_store(data_dir: Path) -> str:
    """Return a new name for a server that leaves syncing to its clients. Names of servers have no spaces."""
    return f"{_MARK}{uuid4().hex}:{quote(str(data_dir.absolute()))}"


def leaves_syncing(server_name: str) -> bool:
    """Return whether a server of that name leaves syncing to its clients."""
    return server_name.startswith(_MARK)


def streams_dir(server_name: str) -> Path | None:
    """Return where a server of that name keeps its streams; None if this process cannot read that."""
    data_dir = Path(unquote(server_name.removeprefix(_MARK).partition(":")[2]))
    try:
        configuration = (data_dir / CONFIGURATION).read_text(errors="replace")
    except OSError:
        return None
    return streams_below(data_dir) if server_name in configuration else None

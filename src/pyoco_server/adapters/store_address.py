"""How those who use an embedded NATS server learn that they have to sync its store, and where it is: by its name.

The server tells its name to everybody who connects, before anything can be stored; so nobody who has to sync can fail
to know, whenever and however often the server is restarted. The name is different at every start, and stands in the
configuration beside the store: whoever finds it there has the right directory, and not one of another machine.
"""

from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote
from uuid import uuid4

CONFIGURATION: Final = "nats-server.conf"
"""What the configuration is called, in the data directory of the server."""

_MARK: Final = "pyoco-synced-by-clients:"


def streams_below(data_dir: Path) -> Path:
    """Where a server with that data directory keeps its streams."""
    return data_dir / "jetstream" / "$G" / "streams"


def name_for_store(data_dir: Path) -> str:
    """What a server is called that leaves syncing to those who use it. Names of servers have no spaces."""
    return f"{_MARK}{uuid4().hex}:{quote(str(data_dir.absolute()))}"


def leaves_syncing(server_name: str) -> bool:
    """Does a server of that name leave syncing to those who use it?"""
    return server_name.startswith(_MARK)


def streams_dir(server_name: str) -> Path | None:
    """Where a server of that name keeps its streams; None if that is not on this machine, or not for us to read."""
    data_dir = Path(unquote(server_name.removeprefix(_MARK).partition(":")[2]))
    try:
        configuration = (data_dir / CONFIGURATION).read_text(errors="replace")
    except OSError:
        return None
    return streams_below(data_dir) if server_name in configuration else None

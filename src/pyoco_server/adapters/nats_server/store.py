"""What JetStream has on the disk, seen from outside.

The server leaves out a stream it cannot read, with no more than a line in its log, and whoever then asks for that
stream would create it anew, empty. So we look before it starts, and compare.

Only whole streams are compared. That messages are missing from one cannot be seen from here.
"""

from pathlib import Path

from pyoco_server.adapters.nats_server.errors import StoreDamagedError
from pyoco_server.adapters.store_address import streams_below


def store_dir(data_dir: Path) -> Path:
    """Where the server keeps its store below the directory it is given."""
    return data_dir / "jetstream"


def stored_streams(data_dir: Path) -> frozenset[str]:
    """The streams on the disk that a server started on this directory has to have."""
    streams = streams_below(data_dir)
    try:
        return frozenset(entry.name for entry in streams.iterdir() if _is_stream(entry))
    except FileNotFoundError:  # nothing stored yet
        return frozenset()
    except OSError as error:
        raise StoreDamagedError(store_dir(data_dir), (), f"{streams}: {error.strerror}") from error


def _is_stream(directory: Path) -> bool:
    if directory.name.startswith("."):  # the server's own mark for one that is being deleted
        return False
    if (directory / "meta.inf").exists() and (directory / "meta.sum").exists():
        return True
    # Without both of these it is one whose creation was cut short, unless there is something in it.
    return any(block.stat().st_size > 0 for block in directory.glob("msgs/*.blk"))

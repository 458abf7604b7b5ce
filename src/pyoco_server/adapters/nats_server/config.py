"""The configuration file and the environment of the embedded server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyoco_server.adapters.jetstream.durability.policy import SyncedBy

MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
"""One commit is one message, results included. 8 MiB is the largest value that the server's documentation advises."""

LOG_SIZE_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 5


class Configuration(NamedTuple):
    """The settings of a server."""

    host: str
    port: int
    synced_by: SyncedBy
    server_name: str
    http_port: int | None = None
    """The port of the server's monitoring; without one it has none."""

    def text(self, *, data_dir: Path, log: Path) -> str:
        """Return the text of the configuration file. The server's own limits of memory and disk apply."""
        monitoring = [] if self.http_port is None else [f"http: {_quoted(f'{self.host}:{self.http_port}')}"]
        sync = ["  sync_interval: always"] if self.synced_by == "server" else []
        lines = [
            "# Written again at every start.",
            f"server_name: {_quoted(self.server_name)}",
            f"host: {_quoted(self.host)}",
            f"port: {self.port or -1}",  # -1: any free port, which the ports file names
            *monitoring,
            f"ports_file_dir: {_quoted(str(data_dir))}",
            f"max_payload: {MAX_PAYLOAD_BYTES}",
            f"logfile: {_quoted(str(log))}",
            f"logfile_size_limit: {LOG_SIZE_BYTES}",
            f"logfile_max_num: {LOG_FILES}",
            "jetstream {",
            f"  store_dir: {_quoted(str(data_dir))}",
            *sync,
            "}",
        ]
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


GO_VARIABLE: Final = "GOMAXPROCS"
"""The variable of Go's runtime. A value that the user has set is kept."""

_ONE_FOR: Final = 4
_MANY: Final = 8
"""On larger machines the server decides by itself: it knows limits that we do not."""


def environment(
    given: Mapping[str, str], *, processors: int, synced_by: SyncedBy, is_for_others: bool
) -> dict[str, str]:
    """Return the environment of a server on a machine with this number of processors.

    A server that syncs by itself keeps all processors: its other threads must run while one waits for the disk. So does
    one that other machines use: their load does not depend on the size of this machine.
    """
    if GO_VARIABLE in given or synced_by == "server" or is_for_others or processors > _MANY:
        return dict(given)
    return {**given, GO_VARIABLE: str(max(1, processors // _ONE_FOR))}


def processors_here() -> int:
    """Return how many processors this process and its children may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

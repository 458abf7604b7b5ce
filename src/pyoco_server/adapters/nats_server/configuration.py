"""The configuration file of the server."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

Durability = Literal["sync", "fast"]
"""``sync``: what was acknowledged is on the disk. ``fast``: it is there within two minutes, the server's default."""

SyncedBy = Literal["server", "clients", "nobody"]
"""Who sees to it that what was acknowledged is on the disk: the server, message by message, or those who use it, for
many messages at a time, before they rely on it. The name of the server tells them (:mod:`..store_address`).
"""

MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
"""One commit is one message, results included. 8 MiB is the most the makers of the server advise."""

LOG_SIZE_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 5


class Configuration(NamedTuple):
    """What the caller decides about a server."""

    host: str
    port: int
    synced_by: SyncedBy
    server_name: str
    http_port: int | None = None
    """Where the server answers questions about itself; nowhere, if not given."""

    def text(self, *, data_dir: Path, log: Path) -> str:
        """As the server reads it. Monitoring is off unless asked for; limits of memory and disk are its own."""
        monitoring = [] if self.http_port is None else [f"http: {_quoted(f'{self.host}:{self.http_port}')}"]
        sync = ["  sync_interval: always"] if self.synced_by == "server" else []
        lines = [
            "# Written anew at every start.",
            f"server_name: {_quoted(self.server_name)}",
            f"host: {_quoted(self.host)}",
            f"port: {self.port or -1}",  # -1: any that is free; the ports file tells which
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

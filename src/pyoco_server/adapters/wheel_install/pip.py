"""Install one wheel with pip into a directory of its own."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

from pyoco_server.app.ports.wheels import WheelInstallError

_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TMP", "TEMP", "SYSTEMROOT")
"""The environment variables that pip gets; it must not get the worker's secrets."""

_OUTPUT_BYTES: Final = 2_000


def pip_command(wheel: Path, target: Path) -> list[str]:
    """Return the command of the specification: offline, into ``target``, and independent of pip's own settings."""
    options = ["--no-index", "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"]
    where = ["--target", str(target)]
    pip = [sys.executable, "-m", "pip", "--isolated"]
    return [*pip, "install", "--no-deps", "--force-reinstall", *options, *where, str(wheel)]


async def pip_install(wheel: Path, target: Path, *, timeout_sec: float) -> None:
    """Install a wheel; WheelInstallError has pip's output. Ends its processes, also if it is cancelled."""
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
        text = output[-_OUTPUT_BYTES:].decode(errors="replace").strip()
        raise WheelInstallError(f"pip could not install '{wheel.name}' (exit code {process.returncode}): {text}")


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kill the process if it runs, with all processes of its session."""
    if process.returncode is None:
        for pid in _others_in_session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


def _others_in_session(leader: int) -> list[int]:
    """Return the other processes of a session, in any process group, where the system has ``/proc``."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            session = stat.read_text(errors="replace").rpartition(")")[2].split()[3]
            if int(session) == leader != int(stat.parent.name):
                found.append(int(stat.parent.name))
    return found

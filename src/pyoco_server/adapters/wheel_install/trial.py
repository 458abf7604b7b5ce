"""Find out whether modules can be imported, without importing them in this process."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyoco_server.adapters.wheel_install import trial_child as wheel_install_trial_child
from pyoco_server.adapters.wheel_install.pip import end_process
from pyoco_server.app.ports.wheels import WheelInstallError
from pyoco_server.flows.environment import environment_of_children

_LONGEST_LINE: Final = 1 << 20


async def try_imports(path: Sequence[str], modules: Sequence[str], *, timeout_sec: float) -> dict[str, str | None]:
    """Return why each module cannot be imported with this search path; None for those that can.

    ``timeout_sec`` is for all of them together. WheelInstallError if no process could try them.
    """
    problems: dict[str, str | None] = {}
    deadline = asyncio.get_running_loop().time() + timeout_sec
    while left := [module for module in modules if module not in problems]:
        try:
            answered = await _ask(path, left, deadline)
        except OSError as error:
            raise WheelInstallError(f"imports cannot be tried: {error}") from error
        if not answered:
            raise WheelInstallError("imports cannot be tried: the process that was to do so did not begin")
        problems |= answered
    return problems


async def _ask(path: Sequence[str], modules: Sequence[str], deadline: float) -> dict[str, str | None]:
    """Return what one process reported before it ended; the module that was being imported is blamed for its end."""
    child = str(Path(wheel_install_trial_child.__file__))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        child,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment_of_children(os.environ),
        limit=_LONGEST_LINE,
        start_new_session=True,
    )
    problems, trial = dict[str, str | None](), _Trial()
    try:
        async with asyncio.timeout_at(deadline):
            await _send(process, {"path": [*path], "modules": [*modules]})
            assert process.stdout is not None  # noqa: S101 for the type checker: it is a pipe
            async for line in process.stdout:
                answer: dict[str, Any] = json.loads(line)
                if "ended" in answer:
                    break
                trial = _Trial(answer["module"], answer.get("at"))
                if "problem" in answer:
                    problems[answer["module"]], trial = answer["problem"], _Trial()
    except TimeoutError:
        late = dict.fromkeys([module for module in modules if module not in problems], trial.not_reached)
        return {**problems, **late, **trial.blamed("it took too long")}
    finally:
        await end_process(process)
    return {**problems, **trial.blamed("it ended the process that imported it")}


class _Trial(NamedTuple):
    """The module that is being imported, and the part of a package."""

    module: str | None = None
    at: str | None = None

    def blamed(self, problem: str) -> dict[str, str]:
        """Return this problem for the module that is being imported, if any."""
        if self.module is None:
            return {}
        return {self.module: f"{problem} (in {self.at})" if self.at is not None else problem}

    @property
    def not_reached(self) -> str:
        """The problem of the modules that were to come after it."""
        return f"it was not tried: there was no time left after {self.at or self.module or 'the beginning'}"


async def _send(process: asyncio.subprocess.Process, asked: dict[str, Any]) -> None:
    assert process.stdin is not None  # noqa: S101 for the type checker: it is a pipe
    with contextlib.suppress(ConnectionError):  # it has ended, and will report nothing
        process.stdin.write(json.dumps(asked).encode())
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()

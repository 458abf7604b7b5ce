"""Finding out whether code can be imported, without importing it here."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyoco_server.adapters import wheel_install_trial_child
from pyoco_server.adapters.wheel_install_pip import end_process
from pyoco_server.app.ports.wheels import WheelInstallError

_LONGEST_LINE: Final = 1 << 20


async def try_imports(path: Sequence[str], modules: Sequence[str], *, timeout_sec: float) -> dict[str, str | None]:
    """Why each of these cannot be imported with this search path; None for those that can.

    ``timeout_sec``: for all of them together. WheelInstallError if that cannot be found out.
    """
    told: dict[str, str | None] = {}
    deadline = asyncio.get_running_loop().time() + timeout_sec
    while left := [module for module in modules if module not in told]:
        try:
            answered = await _ask(path, left, deadline)
        except OSError as error:
            raise WheelInstallError(f"imports cannot be tried: {error}") from error
        if not answered:
            raise WheelInstallError("imports cannot be tried: the process that was to do so did not begin")
        told |= answered
    return told


async def _ask(path: Sequence[str], modules: Sequence[str], deadline: float) -> dict[str, str | None]:
    """What one process had to say before it ended; a module that ended it is to blame."""
    child = str(Path(wheel_install_trial_child.__file__))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        child,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LONGEST_LINE,
        start_new_session=True,
    )
    told, trial = dict[str, str | None](), _Trial()
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
                    told[answer["module"]], trial = answer["problem"], _Trial()
    except TimeoutError:
        late = dict.fromkeys([module for module in modules if module not in told], trial.not_reached)
        return {**told, **late, **trial.blamed("it took too long")}
    finally:
        await end_process(process)
    return {**told, **trial.blamed("it ended the process that imported it")}


class _Trial(NamedTuple):
    """What is being imported, and, of a package, which part."""

    module: str | None = None
    at: str | None = None

    def blamed(self, problem: str) -> dict[str, str]:
        """That it has this problem, if anything is being imported."""
        if self.module is None:
            return {}
        return {self.module: f"{problem} (in {self.at})" if self.at is not None else problem}

    @property
    def not_reached(self) -> str:
        """What is told of those that were to come after it."""
        return f"it was not tried: there was no time left after {self.at or self.module or 'the beginning'}"


async def _send(process: asyncio.subprocess.Process, asked: dict[str, Any]) -> None:
    assert process.stdin is not None  # noqa: S101 for the type checker: it is a pipe
    with contextlib.suppress(ConnectionError):  # it has ended already, and says nothing
        process.stdin.write(json.dumps(asked).encode())
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()

"""Where functions are called in this process and its children.

Coroutines run on the loop, plain functions in threads, and what asks for it in processes, which can be killed.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pyoco_server.adapters.isolation.errors import fit_to_raise
from pyoco_server.adapters.isolation.processes import ProcessSlots
from pyoco_server.adapters.isolation.remote_context import Portable
from pyoco_server.adapters.isolation.task_reference import sendable
from pyoco_server.adapters.isolation.threads import ThreadSlots
from pyoco_server.flows.model import Isolation

SOFT_STOP_SEC = 0.5
"""How long a process that is told to stop may take before it is killed."""


class LocalWorkshop:
    """Serves the Workshop port; its places are shared by all runs."""

    def __init__(self, *, threads: int, processes: int) -> None:
        self._threads = ThreadSlots(threads, name="pyoco-task")
        self._processes = ProcessSlots(processes)

    @property
    def abandoned(self) -> int:
        """Threads given up on whose function has not returned yet."""
        return self._threads.abandoned

    async def call(self, function: Callable[..., Any], kwargs: dict[str, Any], *, isolation: Isolation) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function where it belongs."""
        if isolation is Isolation.PROCESS:
            return await self._call_in_process(function, kwargs)
        if inspect.iscoroutinefunction(function):
            try:
                return await function(**kwargs)
            except (SystemExit, KeyboardInterrupt) as error:  # would end the loop, and all runs with it
                raise fit_to_raise(error) from error
        return await self._threads.run(functools.partial(function, **kwargs))

    async def close(self) -> None:
        """Let go of threads and processes."""
        await self._threads.close(0)
        await self._processes.close()

    async def _call_in_process(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        context = kwargs.get("ctx")
        sent = {name: Portable(value) if value is context else value for name, value in kwargs.items()}

        def on_message(told: tuple[float | None, str | None]) -> None:
            if context is not None:
                context.progress(*told)

        return await self._processes.run(sendable(function), (), sent, on_message=on_message, grace_sec=SOFT_STOP_SEC)

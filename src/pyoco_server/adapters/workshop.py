"""Where functions are called in this process and its children.

Coroutines run on the loop, plain functions in threads, and what asks for it in processes, which can be killed.

A ``timeout_sec`` runs on real time, whatever clock the engine has: what a function does takes real time.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from pyoco_server.adapters.isolation.coroutines import Coroutines
from pyoco_server.adapters.isolation.processes import ProcessSlots
from pyoco_server.adapters.isolation.remote_context import Portable
from pyoco_server.adapters.isolation.task_reference import sendable
from pyoco_server.adapters.isolation.threads import ThreadSlots
from pyoco_server.app.calling import is_async
from pyoco_server.app.context import TaskContext
from pyoco_server.app.ports.engine import CallOverdueError, Watch
from pyoco_server.flows.model import Interrupt, Isolation

SOFT_STOP_SEC = 0.5
"""How long a process that is told to stop may take before it is killed."""

Function = Callable[..., Any]


class LocalWorkshop:
    """Serves the Workshop port; its places are shared by all runs."""

    def __init__(self, *, threads: int, processes: int, shield_sec: float = 30.0) -> None:
        """``shield_sec``: so long a process that is to end may stay in a shielded section."""
        self._shield_sec = shield_sec
        self._threads = ThreadSlots(threads, name="pyoco-task")
        self._processes = ProcessSlots(processes)
        self._coroutines = Coroutines()

    @property
    def abandoned(self) -> int:
        """Threads and coroutines given up on that have not ended yet."""
        return self._threads.abandoned + self._coroutines.abandoned

    async def call(
        self,
        function: Function,
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: Watch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function where it belongs."""
        watch = watch or Watch()
        if timeout_sec is None:
            return await self._call(function, args, kwargs, isolation, watch)
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
        try:
            async with limit:
                watch.when_begun(lambda: limit.reschedule(loop.time() + timeout_sec))
                return await self._call(function, args, kwargs, isolation, watch)
        except TimeoutError as error:
            if limit.expired():
                raise CallOverdueError(timeout_sec) from error
            raise  # the function's own

    async def close(self) -> None:
        """Let go of threads, processes and coroutines."""
        await self._threads.close(0)
        await self._processes.close()
        await self._coroutines.close()

    async def _call(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], isolation: Isolation, watch: Watch
    ) -> Any:  # noqa: ANN401
        if isolation is Isolation.PROCESS:
            return await self._call_in_process(function, args, kwargs, watch)
        if is_async(function):
            watch.begin()
            return await self._await(functools.partial(function, *args, **kwargs), function, watch)
        value = await self._call_in_thread(functools.partial(function, *args, **kwargs), watch)
        if hasattr(type(value), "__await__"):  # a plain function that hands on a coroutine or a future
            try:
                return await self._await(lambda: value, function, watch)
            finally:
                if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
                    value.close()  # the call was stopped before it began: nobody is to miss that it never did
        return value

    async def _call_in_thread(self, call: Callable[[], Any], watch: Watch) -> Any:  # noqa: ANN401
        is_interrupted = watch.manner is Interrupt.RAISE

        def on_begin(interrupt: Callable[[], None]) -> None:
            watch.interrupt = interrupt if is_interrupted else None
            watch.begin()

        try:
            return await self._threads.run(call, on_begin=on_begin, is_interrupted=is_interrupted, shield=watch.shield)
        finally:
            watch.interrupt = None

    async def _await(self, start: Callable[[], Awaitable[Any]], function: Function, watch: Watch) -> Any:  # noqa: ANN401
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        return await self._coroutines.run(start, watch, name=name)

    async def _call_in_process(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], watch: Watch
    ) -> Any:  # noqa: ANN401
        contexts = [value for value in (*args, *kwargs.values()) if isinstance(value, TaskContext)]

        def on_message(told: tuple[float | None, str | None]) -> None:
            for context in contexts[:1]:
                context.progress(*told)

        return await self._processes.run(
            sendable(function),
            tuple(map(_portable, args)),
            {name: _portable(value) for name, value in kwargs.items()},
            on_message=on_message,
            at_place=watch.at_place,
            on_begin=watch.begin if watch.is_waited_for else None,  # a child that tells costs one more message
            on_sent=functools.partial(setattr, watch, "interrupt"),
            grace_sec=SOFT_STOP_SEC,
            shield_sec=self._shield_sec,
        )


def _portable(value: Any) -> Any:  # noqa: ANN401 any argument
    return Portable(value) if isinstance(value, TaskContext) else value

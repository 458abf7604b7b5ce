"""Run user functions in this process and its children: the task executor of workers and of the engine.

Coroutines run on the loop, plain functions in threads, and tasks with ``isolation: process`` in processes, which can
be killed. A ``timeout_sec`` uses real time, whatever clock the engine has, because the function takes real time.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pyoco_server.adapters.executor.coroutines import Coroutines
from pyoco_server.adapters.executor.processes.packing import sendable
from pyoco_server.adapters.executor.processes.pool import ProcessSlots
from pyoco_server.adapters.executor.processes.remote_context import Portable
from pyoco_server.adapters.executor.threads import ThreadSlots
from pyoco_server.app.ports.task_executor import CallOverdueError, CallWatch
from pyoco_server.app.runtime.argument_binding import is_async
from pyoco_server.app.runtime.context import TaskContext
from pyoco_server.flows.model import Interrupt, Isolation

SOFT_STOP_SEC = 0.5
"""How long a process that was asked to stop may take before it is killed."""

MOST_ASIDE = 64
"""Threads for calls that are no task's. They are short, unless code of users there does not return."""

T = TypeVar("T")
Function = Callable[..., Any]


class LocalExecutor:
    """Implements the TaskExecutor port; all runs share its slots."""

    def __init__(self, *, threads: int, processes: int, shield_sec: float = 30.0) -> None:
        """``shield_sec``: how long a process that must end may stay in a shielded section."""
        self._shield_sec = shield_sec
        self._threads = ThreadSlots(threads, name="pyoco-task")
        self._aside = ThreadSlots(MOST_ASIDE, name="pyoco-task-value")
        self._processes = ProcessSlots(processes)
        self._coroutines = Coroutines()

    @property
    def abandoned(self) -> int:
        """How many abandoned threads and coroutines still run."""
        return self._threads.abandoned + self._aside.abandoned + self._coroutines.abandoned

    async def call(
        self,
        function: Function,
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: CallWatch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function on the loop, in a thread or in a process, and return or raise what it does."""
        watch = watch or CallWatch()
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

    async def aside(self, call: Callable[[], T]) -> T:
        """Make a call that is no task's in a thread that no task waits for."""
        return await self._aside.run(call)

    async def close(self) -> None:
        """Release threads, processes and coroutines."""
        await self._threads.close(0)
        await self._aside.close(0)
        await self._processes.close()
        await self._coroutines.close()

    async def _call(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], isolation: Isolation, watch: CallWatch
    ) -> Any:  # noqa: ANN401
        if isolation is Isolation.PROCESS:
            return await self._call_in_process(function, args, kwargs, watch)
        if is_async(function):
            watch.begin()
            return await self._await(functools.partial(function, *args, **kwargs), function, watch)
        value = await self._call_in_thread(functools.partial(function, *args, **kwargs), watch)
        if hasattr(type(value), "__await__"):  # a plain function that returns a coroutine or a future
            try:
                return await self._await(lambda: value, function, watch)
            finally:
                if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
                    value.close()  # the call was stopped before it began: Python must not warn about that
        return value

    async def _call_in_thread(self, call: Callable[[], Any], watch: CallWatch) -> Any:  # noqa: ANN401
        is_interrupted = watch.manner is Interrupt.RAISE

        def on_begin(interrupt: Callable[[], None]) -> None:
            watch.interrupt = interrupt if is_interrupted else None
            watch.begin()

        try:
            return await self._threads.run(call, on_begin=on_begin, is_interrupted=is_interrupted, shield=watch.shield)
        finally:
            watch.interrupt = None

    async def _await(self, start: Callable[[], Awaitable[Any]], function: Function, watch: CallWatch) -> Any:  # noqa: ANN401
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        return await self._coroutines.run(start, watch, name=name)

    async def _call_in_process(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], watch: CallWatch
    ) -> Any:  # noqa: ANN401
        contexts = [value for value in (*args, *kwargs.values()) if isinstance(value, TaskContext)]

        def on_message(report: tuple[float | None, str | None]) -> None:
            for context in contexts[:1]:
                context.progress(*report)

        return await self._processes.run(
            sendable(function),
            tuple(map(_portable, args)),
            {name: _portable(value) for name, value in kwargs.items()},
            on_message=on_message,
            at_place=watch.at_place,
            on_begin=watch.begin if watch.is_waited_for else None,  # this report costs one more message
            on_sent=functools.partial(setattr, watch, "interrupt"),
            grace_sec=SOFT_STOP_SEC,
            shield_sec=self._shield_sec,
        )


def _portable(value: Any) -> Any:  # noqa: ANN401 any argument
    return Portable(value) if isinstance(value, TaskContext) else value

"""An executor that keeps virtual time from passing while it is at work."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pyoco_server.app.ports import TaskExecutor
from pyoco_server.app.ports.task_executor import CallOverdueError, CallWatch
from pyoco_server.flows.model import Isolation
from pyoco_server.testing.virtual_clock import VirtualClock

T = TypeVar("T")


class CountingExecutor:
    """Serves the TaskExecutor port by another executor, and holds the clock during every call.

    A call that was abandoned (a thread that does not stop) no longer holds it. A ``timeout_sec`` ends a
    call after so much real time, or when a test moves virtual time past it: ``advance(..., overtake=True)``.
    """

    def __init__(self, inner: TaskExecutor, clock: VirtualClock) -> None:
        self._inner = inner
        self._clock = clock
        self._running = 0

    @property
    def running(self) -> int:
        """How many calls are in progress, with those that wait for a slot."""
        return self._running

    async def call(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: CallWatch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function where it belongs; time stands still meanwhile."""
        watch = watch or CallWatch()
        self._running += 1
        try:
            with self._clock.hold():
                call = self._inner.call(
                    function, kwargs, isolation=isolation, args=args, timeout_sec=timeout_sec, watch=watch
                )
                return await (call if timeout_sec is None else self._within(timeout_sec, watch, call))
        finally:
            self._running -= 1

    async def aside(self, call: Callable[[], T]) -> T:
        """Make a call that is no task's; time stands still meanwhile."""
        self._running += 1
        try:
            with self._clock.hold():
                return await self._inner.aside(call)
        finally:
            self._running -= 1

    async def close(self) -> None:
        """Close the executor."""
        await self._inner.close()

    async def _within(self, timeout_sec: float, watch: CallWatch, call: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
        """The call, unless virtual time is moved past its end."""
        limit, timers = asyncio.timeout(None), list[asyncio.Task[None]]()

        async def expire() -> None:
            await self._clock.sleep(timeout_sec)
            limit.reschedule(asyncio.get_running_loop().time())

        try:
            async with limit:
                watch.when_begun(lambda: timers.append(asyncio.create_task(expire(), name="virtual timeout")))
                return await call
        except TimeoutError as error:
            if limit.expired():
                raise CallOverdueError(timeout_sec) from error
            raise
        finally:
            for timer in timers:
                timer.cancel()

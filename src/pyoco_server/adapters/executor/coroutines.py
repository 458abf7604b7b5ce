"""Run user coroutines on the event loop; one that does not end when it is cancelled is abandoned.

A coroutine can swallow its cancellation. As with a thread, its caller does not wait for ever: after ``STOP_SEC`` the
call is *abandoned*. Its task continues, its result is dropped, and it is counted and logged once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pyoco_server.adapters.executor.errors import fit_to_raise
from pyoco_server.app.ports.task_executor import CallWatch, Shield
from pyoco_server.flows.model import Interrupt

_log = logging.getLogger(__name__)

STOP_SEC = 0.4
"""How long the caller waits for a cancelled coroutine to end; the coroutine may clean up for longer."""


class Coroutines:
    """Runs awaitables in tasks of their own. Belongs to one event loop."""

    def __init__(self) -> None:
        self._abandoned: set[asyncio.Task[Any]] = set()

    @property
    def abandoned(self) -> int:
        """How many abandoned coroutines still run."""
        return len(self._abandoned)

    async def run(self, start: Callable[[], Awaitable[Any]], watch: CallWatch, *, name: str) -> Any:  # noqa: ANN401 any result
        """Await the result of ``start``, and return or raise what it does.

        A cancel of this call cancels the coroutine, and abandons it if it does not end; before the coroutine begins,
        it prevents the call of ``start``. A closed shield defers the cancel of the coroutine, not the end of the call.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(_guarded(start), name=name)
        ended = loop.create_future()
        # We do not await the task itself: a cancel would go to it, and we would have to wait until it ends.
        task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        if watch.manner is Interrupt.RAISE:
            watch.interrupt = lambda: _cancel(task, watch.shield)
            if watch.is_asked:
                task.cancel()
        try:
            await ended
        except asyncio.CancelledError:
            await self._end(task, watch)
            raise
        finally:
            watch.interrupt = None
        return task.result()

    async def close(self) -> None:
        """Cancel the abandoned coroutines again, and give them a last turn of the loop."""
        for task in self._abandoned:
            task.cancel()
        await asyncio.sleep(0)

    async def _end(self, task: asyncio.Task[Any], watch: CallWatch) -> None:
        if not watch.is_asked or watch.manner is Interrupt.FLAG:
            _cancel(task, watch.shield)
        try:
            await asyncio.wait((task,), timeout=STOP_SEC)
        finally:  # a second cancel ends this wait
            if task.done():
                _forget(task)
            else:
                self._abandon(task)

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        task.add_done_callback(_forget)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 logged here instead
        _log.warning(
            "%s was cancelled and does not end: the call is abandoned, and the coroutine continues in the background",
            task.get_name(),
            extra={"action": "coroutine_abandoned", "function": task.get_name()},
        )


def _cancel(task: asyncio.Task[Any], shield: Shield) -> None:
    """Cancel the task now, or when it has left the sections that must finish."""
    if shield.is_closed:
        loop = task.get_loop()
        shield.when_open(lambda: loop.call_soon_threadsafe(task.cancel))
    else:
        task.cancel()


async def _guarded(start: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 any result
    try:
        return await start()
    except (SystemExit, KeyboardInterrupt) as error:  # would end the loop, and all runs with it
        raise fit_to_raise(error) from error


def _forget(task: asyncio.Task[Any]) -> None:
    """Read the exception of an abandoned task, so that asyncio does not warn that it was never retrieved."""
    if not task.cancelled():
        task.exception()

"""Coroutines of the user's on the event loop, which end when they are told to or are left behind.

A coroutine can swallow its cancellation. As with a thread, whoever waits for it does not wait for ever: after a moment
the call is *abandoned*, its task runs on unheard, is counted, and told once in the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pyoco_server.adapters.isolation.errors import fit_to_raise
from pyoco_server.app.ports.engine import Watch
from pyoco_server.app.shield import Shield
from pyoco_server.flows.model import Interrupt

_log = logging.getLogger(__name__)

STOP_SEC = 0.4
"""How long a cancelled coroutine may take to end; it may clean up for longer, but nobody waits."""


class Coroutines:
    """Runs awaitables in tasks of their own. Belongs to one event loop."""

    def __init__(self) -> None:
        self._abandoned: set[asyncio.Task[Any]] = set()

    @property
    def abandoned(self) -> int:
        """How many still run although nobody waits for them."""
        return len(self._abandoned)

    async def run(self, start: Callable[[], Awaitable[Any]], watch: Watch, *, name: str) -> Any:  # noqa: ANN401 any result
        """Await what ``start`` makes, and return or raise what that does.

        Cancelled, it is cancelled too, and abandoned if it does not end; ``start`` is not called if that comes first.
        A closed shield defers the cancel of the coroutine, not what becomes of the call.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(_guarded(start), name=name)
        ended = loop.create_future()
        # Not the task itself is awaited: a cancel of ours would go to it, and we would have to wait for what it does.
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
        """Tell the abandoned once more; they have a last turn of the loop."""
        for task in self._abandoned:
            task.cancel()
        await asyncio.sleep(0)

    async def _end(self, task: asyncio.Task[Any], watch: Watch) -> None:
        if not watch.is_asked or watch.manner is Interrupt.FLAG:
            _cancel(task, watch.shield)
        try:
            await asyncio.wait((task,), timeout=STOP_SEC)
        finally:  # cancelled once more means: do not even wait for that
            if task.done():
                _forget(task)
            else:
                self._abandon(task)

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        task.add_done_callback(_forget)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 it is told here, not when the loop is closed
        _log.warning(
            "%s does not end although it was cancelled: it is left to itself",
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
    """What it ended with is nobody's business any more; asked for, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()

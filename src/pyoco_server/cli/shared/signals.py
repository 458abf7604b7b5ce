"""Stops long-running commands on SIGTERM and Ctrl-C, also while they start."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

from pyoco_server.cli.shared.parsing import DONE, INTERRUPTED

T = TypeVar("T")
_CANCEL_AGAIN_SEC: Final = 5.0


class StopRequests(asyncio.Event):
    """An event that SIGTERM and SIGINT set; create it on the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._first: signal.Signals | None = None
        self._on_signal: Callable[[], None] = lambda: None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._arrived, number)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that stopped in good order: 130 after Ctrl-C, 0 after SIGTERM."""
        return INTERRUPTED if self._first is signal.SIGINT else DONE

    def on_each(self, callback: Callable[[], None]) -> None:
        """Call the function for every signal, also for one that arrived before."""
        self._on_signal = callback
        if self.is_set():
            callback()

    @contextlib.asynccontextmanager
    async def cutting_short(self) -> AsyncIterator[None]:
        """Cancel the block when a signal arrives; the caller has to check afterwards whether one did."""
        limit = asyncio.timeout(None)

        def give_up() -> None:
            if not limit.expired():
                limit.reschedule(0.0)

        try:
            async with limit:
                self.on_each(give_up)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._on_signal = lambda: None

    def _arrived(self, number: signal.Signals) -> None:
        self._first = self._first or number
        self.set()
        self._on_signal()


async def first_of(asked: asyncio.Event, *others: "asyncio.Task[Any]") -> None:
    """Wait for a request to stop, or for the end of one of the others; raises its error."""
    waiting = asyncio.create_task(asked.wait())
    try:
        done, _ = await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in done - {waiting}:
        task.result()


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine beside the block; cancel it at the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        while not task.done():  # Python 3.11 can lose a cancellation that coincides with an answer
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_AGAIN_SEC)
        await asyncio.gather(task, return_exceptions=True)

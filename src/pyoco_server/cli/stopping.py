"""Until somebody says stop."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

from pyoco_server.cli.parsing import DONE, INTERRUPTED

T = TypeVar("T")
_TOLD_AGAIN_SEC: Final = 5.0


class StopRequests(asyncio.Event):
    """Set when SIGTERM or SIGINT arrives; make it on the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._first: signal.Signals | None = None
        self._told: Callable[[], None] = lambda: None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._arrived, number)

    @property
    def exit_code(self) -> int:
        """How a command ends that did all it should: Ctrl-C is an interruption, SIGTERM is how it is meant to end."""
        return INTERRUPTED if self._first is signal.SIGINT else DONE

    def on_each(self, told: Callable[[], None]) -> None:
        """Call this for every signal, also for one that came before."""
        self._told = told
        if self.is_set():
            told()

    @contextlib.asynccontextmanager
    async def cutting_short(self) -> AsyncIterator[None]:
        """What is inside is given up when a signal arrives: whoever goes on then has to look whether one did."""
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
            self._told = lambda: None

    def _arrived(self, number: signal.Signals) -> None:
        self._first = self._first or number
        self.set()
        self._told()


async def first_of(asked: asyncio.Event, *others: "asyncio.Task[Any]") -> None:
    """Wait until asked to stop, or until one of the others ends; raises what it raises."""
    waiting = asyncio.create_task(asked.wait())
    try:
        done, _ = await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in done - {waiting}:
        task.result()


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Something that goes on beside what is inside, and ends with it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        while not task.done():  # who is just being answered may not hear it the first time (Python 3.11)
            task.cancel()
            await asyncio.wait({task}, timeout=_TOLD_AGAIN_SEC)
        await asyncio.gather(task, return_exceptions=True)

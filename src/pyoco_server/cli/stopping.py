"""Until somebody says stop."""

import asyncio
import signal
from typing import Any


def stop_requests() -> asyncio.Event:
    """Set when SIGTERM or SIGINT arrives; call on the event loop."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    return asked


async def first_of(asked: asyncio.Event, *others: "asyncio.Task[Any]") -> None:
    """Wait until asked to stop, or until one of the others ends; raises what it raises."""
    waiting = asyncio.create_task(asked.wait())
    try:
        done, _ = await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in done - {waiting}:
        task.result()

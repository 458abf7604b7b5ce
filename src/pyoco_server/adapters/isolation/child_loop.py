"""Coroutines in a child process: each call that makes one gets an event loop of its own."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from pyoco_server.adapters.isolation.child import ChildControl


def run(awaitable: Awaitable[Any], control: ChildControl) -> Any:  # noqa: ANN401 (anything)
    """Await it; when the call is asked to stop it is cancelled, and may clean up in the time it is given."""
    return asyncio.run(_watched(awaitable, control))


async def _watched(awaitable: Awaitable[Any], control: ChildControl) -> Any:  # noqa: ANN401 (anything)
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def cancel() -> None:
        # The loop may be over when the parent's word arrives: then there is nothing to stop.
        with contextlib.suppress(RuntimeError):
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

    control.when_cancelled(cancel)
    return await awaitable

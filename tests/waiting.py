"""Waits until a condition is true, instead of sleeping for a fixed time."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_SEC: Final = 60.0
"""How long to wait for what must happen. Only a test that fails waits so long, so a slow machine gets all the time."""


async def wait_until(predicate: Callable[[], object], timeout: float = PATIENCE_SEC) -> None:  # noqa: ASYNC109 (reads well)
    """Return as soon as the predicate is true; raises ``TimeoutError`` with its name if it never is."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{getattr(predicate, '__qualname__', predicate)} did not hold within {timeout} s")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)

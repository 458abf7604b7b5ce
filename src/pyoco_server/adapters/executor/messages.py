"""Deliver the messages that a function in a child process sends while it runs.

They are loaded on the event loop, so they consist of Python's own types: to load anything else runs code of users.
"""

import asyncio
import io
import pickle
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

OnMessage = Callable[[Any], Awaitable[None] | None]

# With so many undelivered messages, the parent stops reading from the child: a function that sends faster than its
# listener receives waits in ``send`` and does not fill the parent's memory.
_ENOUGH = 256


class _PlainUnpickler(pickle.Unpickler):
    """Loads values of Python's own types, and runs no code of users."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # type: ignore[explicit-override]  # noqa: ANN401 (as its base)
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not one of Python's own types")


def load_plain(payload: bytes) -> Any:  # noqa: ANN401 (anything)
    """Load a pickle of Python's own types. Raises ``pickle.UnpicklingError`` for any other."""
    return _PlainUnpickler(io.BytesIO(payload)).load()


class Messages:
    """Hands the messages of one call to its listener, in order, one at a time.

    The listener may be a plain function or a coroutine function. What it raises goes to the exception handler of the
    event loop, and does not affect the call. Without a listener, messages are dropped.
    """

    def __init__(self, listener: OnMessage | None, *, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._listener = listener
        self._pause = pause
        self._resume = resume
        self._pending: deque[bytes] = deque()
        self._delivery: asyncio.Task[None] | None = None

    def put(self, payload: bytes) -> None:
        """Queue a message that arrived on the connection."""
        if self._listener is None:
            return
        self._pending.append(payload)
        if len(self._pending) >= _ENOUGH:
            self._pause()
        if self._delivery is None:
            self._delivery = asyncio.create_task(self._deliver(self._listener), name="deliver messages of a child")

    async def finish(self) -> None:
        """Wait until all messages are delivered."""
        if self._delivery is not None:
            await self._delivery

    def drop(self) -> None:
        """Drop all undelivered messages, and those that follow."""
        self._listener = None
        self._pending.clear()
        self._resume()
        if self._delivery is not None:
            self._delivery.cancel()

    async def _deliver(self, listener: OnMessage) -> None:
        while self._pending:
            payload = self._pending.popleft()
            if not self._pending:
                self._resume()
            try:
                delivered = listener(load_plain(payload))
                if delivered is not None:
                    await delivered
            except Exception as error:  # noqa: BLE001 (reported to the loop's exception handler)
                _report(error)
        self._delivery = None


def _report(error: Exception) -> None:
    context = {"message": "on_message, or loading a message of a child process, failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)

"""A workshop that keeps virtual time from passing while it is at work."""

from collections.abc import Callable
from typing import Any

from pyoco_server.app.ports import Workshop
from pyoco_server.flows.model import Isolation
from pyoco_server.testing.virtual_clock import VirtualClock


class CountingWorkshop:
    """Serves the Workshop port by another workshop, and holds the clock during every call.

    A call that nobody waits for any more (a thread that was given up on) no longer holds it.
    """

    def __init__(self, inner: Workshop, clock: VirtualClock) -> None:
        self._inner = inner
        self._clock = clock
        self._running = 0

    @property
    def running(self) -> int:
        """How many calls are under way, those that wait for a place included."""
        return self._running

    async def call(self, function: Callable[..., Any], kwargs: dict[str, Any], *, isolation: Isolation) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function where it belongs; time stands still meanwhile."""
        self._running += 1
        try:
            with self._clock.hold():
                return await self._inner.call(function, kwargs, isolation=isolation)
        finally:
            self._running -= 1

    async def close(self) -> None:
        """Let go of all places."""
        await self._inner.close()

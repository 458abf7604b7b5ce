"""The clock for time limits on replies: it counts only time in which the event loop worked off what had arrived.

While the loop stalls, replies wait unread, so silence proves nothing. This is the only detection of a stalled loop;
everything in this adapter that waits for the server's word uses it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

TICK_SEC: Final = 0.1
"""How far the clock advances at a time; after a longer stall, too."""


class LoopClock:
    """Advances by one tick whenever a timer of that length fires, however late it does.

    Limits are checked before the clock advances. So a limit that ends during a stall takes effect one tick after the
    stall at the earliest, and the loop has read by then what arrived meanwhile.
    """

    def __init__(self, on_tick: Callable[[float], bool]) -> None:
        """``on_tick`` gets the time that has passed, and returns whether the clock is still needed."""
        self.now = 0.0
        self._on_tick = on_tick
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the clock advances."""
        return self._timer is not None

    def run(self) -> None:
        """Let the clock advance as long as it is needed."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SEC, self._tick)

    def stop(self) -> None:
        """Stop the clock until it is needed again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        is_needed = self._on_tick(self.now)
        self.now += TICK_SEC
        if is_needed:
            self.run()

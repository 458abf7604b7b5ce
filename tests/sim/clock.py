"""The clock of a simulated process: the time of the loop, plus an error."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.sim.loop import SimLoop

START: Final = datetime(2030, 1, 1, tzinfo=UTC)


class SimClock:
    """Serves the Clock port; ``skew_sec`` is its error."""

    def __init__(self, loop: SimLoop, skew_sec: float = 0.0) -> None:
        self._loop = loop
        self._start = START + timedelta(seconds=skew_sec)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))

"""Watch the ends of runs on NATS itself, so that polling is not part of what is measured."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.floor import connected

PATIENCE_SEC = 300.0
_SUBJECT = "$KV.pyoco_runs."
_COMPLETED, _OTHER_ENDS = b'"status":"COMPLETED"', (b'"status":"FAILED"', b'"status":"CANCELLED"')


class Ends:
    """The times at which the last snapshots of runs were stored."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self._ended = asyncio.Event()
        self._problem: str | None = None

    async def note(self, message: Any) -> None:  # noqa: ANN401 nats-py has no types to speak of
        """Note a stored snapshot."""
        if any(end in message.data for end in _OTHER_ENDS):
            self._problem = f"a run did not end well: {message.data[:2_000]!r}"
            self._ended.set()
        elif _COMPLETED in message.data:
            self.at.setdefault(message.subject.removeprefix(_SUBJECT), time.perf_counter())
            self._ended.set()

    async def all_of(self, count: int) -> None:
        """Wait until this many runs have ended."""
        async with asyncio.timeout(PATIENCE_SEC):
            while len(self.at) < count:
                self._ended.clear()
                await self._ended.wait()
                if self._problem is not None:
                    raise RuntimeError(self._problem)


@contextlib.asynccontextmanager
async def ends_of_runs(nats_url: str) -> AsyncIterator[Ends]:
    """Note every run that ends from now on."""
    async with connected(nats_url) as connection:
        ends = Ends()
        await connection.subscribe(f"{_SUBJECT}>", cb=ends.note)
        await connection.flush()
        yield ends

"""The time of this machine."""

import asyncio
from datetime import UTC, datetime


class SystemClock:
    """The real time, really waited for."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 this is the clock

    async def sleep(self, seconds: float) -> None:
        """Come back after so many seconds."""
        await asyncio.sleep(seconds)

"""Logs in memory that have only just begun."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from pyoco_server.adapters.memory.event_log import MemoryEventLog


class MemoryBeginnings:
    """Takes one event for one commit, as the log in memory does."""

    def __init__(self, log: MemoryEventLog) -> None:
        self._log = log

    async def pages(self) -> AsyncIterator[Sequence[str]]:
        """All of them at once."""
        logs = msgspec.msgpack.decode(self._log.dump(), type=dict[str, list[bytes]])
        yield [execution_id for execution_id, lines in logs.items() if len(lines) == 1]

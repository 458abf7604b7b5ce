"""Dead letters in memory, stored as the bytes that would be on disk."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec

from pyoco_server.app.ports import DeadLetter


class MemoryDeadLetters:
    """All that came, in order."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, bytes]] = []

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Keep an entry."""
        self._kept.append((tag, msgspec.json.encode(entry)))

    async def count(self) -> int:
        """How many are kept."""
        return len(self._kept)

    async def newest(self, limit: int) -> Sequence[DeadLetter]:
        """The newest so many, newest first."""
        numbered = zip(range(len(self._kept), 0, -1), reversed(self._kept), strict=True)
        return [
            DeadLetter(number, tag, msgspec.json.decode(body))
            for number, (tag, body) in islice(numbered, max(limit, 0))
        ]

    async def get(self, sequence: int) -> DeadLetter | None:
        """The one with this number, if it is kept."""
        if not 1 <= sequence <= len(self._kept):
            return None
        tag, body = self._kept[sequence - 1]
        return DeadLetter(sequence, tag, msgspec.json.decode(body))

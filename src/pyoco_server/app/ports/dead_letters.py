"""Dead letters: jobs that failed for good, kept for diagnosis."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class StoredDeadLetter(NamedTuple):
    """A dead letter as it is stored."""

    sequence: int
    tag: str
    entry: dict[str, Any]


class DeadLetters(Protocol):
    """Written best-effort: the run's snapshot says what happened, the dead letter says of which delivery."""

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Store an entry. UnavailableError: it may be stored or not."""
        ...

    async def count(self) -> int:
        """Return how many letters are stored."""
        ...

    async def newest(self, limit: int) -> Sequence[StoredDeadLetter]:
        """Return the newest ``limit`` letters, newest first."""
        ...

    async def get(self, sequence: int) -> StoredDeadLetter | None:
        """Return the letter with this number, if it is stored."""
        ...

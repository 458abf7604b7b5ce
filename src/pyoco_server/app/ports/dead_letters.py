"""Dead letters: jobs that came to nothing, kept for diagnosis."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class DeadLetter(NamedTuple):
    """A dead letter as it is stored."""

    sequence: int
    tag: str
    entry: dict[str, Any]


class DeadLetters(Protocol):
    """Written best-effort: the run's snapshot tells what happened, this tells where to look."""

    async def publish(self, tag: str, entry: dict[str, Any]) -> None:
        """Keep an entry. UnavailableError: perhaps not."""
        ...

    async def count(self) -> int:
        """How many are kept."""
        ...

    async def newest(self, limit: int) -> Sequence[DeadLetter]:
        """The newest so many, newest first."""
        ...

    async def get(self, sequence: int) -> DeadLetter | None:
        """The one with this number, if it is kept."""
        ...

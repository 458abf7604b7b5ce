"""What clients asked and were told, in the order of real time."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum, unique
from typing import Final

import msgspec
from typing_extensions import override

UNKNOWN: Final = "unknown"
"""No answer, or one that leaves open what became of it: perhaps it was done, perhaps it will be, perhaps never."""
REFUSED: Final = "refused"
"""It was not done, and never will be."""
ABSENT: Final = "absent"
"""There is no such run."""
CREATED: Final = "created"
"""There was no such execution, and now there is."""
EXISTS: Final = "exists"
"""There was one already."""


@unique
class Kind(StrEnum):
    """What was asked."""

    SUBMIT = "submit"
    CREATE = "create"
    """An execution somebody outside will drive."""
    CANCEL = "cancel"
    GET = "get"
    """How the run stands, from its log."""
    LOOK = "look"
    """How the run stands, from its snapshot."""


class Operation(msgspec.Struct):
    """A question and its answer; times count steps of the simulation."""

    kind: Kind
    run_id: str
    asked: int
    answered: int | None = None
    answer: str = UNKNOWN
    position: int = 0
    """Of a look: how much of the log the snapshot knew."""
    key: str | None = None
    client: str = ""

    @property
    def is_known(self) -> bool:
        """Was there an answer that says what happened?"""
        return self.answered is not None and self.answer != UNKNOWN

    @override
    def __str__(self) -> str:
        until = "…" if self.answered is None else self.answered
        return f"{self.asked}–{until} {self.client} {self.kind} {self.run_id}: {self.answer}"


class History:
    """All operations of a world."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    @contextmanager
    def asking(self, operation: Operation) -> Iterator[Operation]:
        """Keep an operation; whoever asks fills in the answer."""
        self.operations.append(operation)
        yield operation

    def of(self, kind: Kind) -> list[Operation]:
        """All of a kind."""
        return [each for each in self.operations if each.kind is kind]

    def accepted(self) -> list[str]:
        """Runs somebody was told are accepted, in the order in which they were."""
        told = (each.run_id for each in self.operations if each.kind is Kind.SUBMIT and each.is_known and each.run_id)
        return list(dict.fromkeys(told))

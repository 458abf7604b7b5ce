"""The requests of clients and their answers, in the order of real time."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum, unique
from typing import Final

import msgspec
from typing_extensions import override

UNKNOWN: Final = "unknown"
"""No answer, or an uncertain one: the request took effect, or will later, or never."""
REFUSED: Final = "refused"
"""The request did not take effect, and never will."""
ABSENT: Final = "absent"
"""There is no such run."""
CREATED: Final = "created"
"""The request created the execution."""
EXISTS: Final = "exists"
"""The execution existed already."""


@unique
class Kind(StrEnum):
    """The kind of a request."""

    SUBMIT = "submit"
    CREATE = "create"
    """Create an execution that an outsider will drive."""
    CANCEL = "cancel"
    GET = "get"
    """Read the status of the run from its log."""
    LOOK = "look"
    """Read the status of the run from its snapshot."""


class Operation(msgspec.Struct):
    """A request and its answer; times count steps of the simulation."""

    kind: Kind
    run_id: str
    asked: int
    answered: int | None = None
    answer: str = UNKNOWN
    position: int = 0
    """For ``LOOK``: the position in the log up to which the snapshot is current."""
    key: str | None = None
    client: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the answer says what happened."""
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
        """Record an operation; the caller sets its answer."""
        self.operations.append(operation)
        yield operation

    def of(self, kind: Kind) -> list[Operation]:
        """Return all operations of a kind."""
        return [each for each in self.operations if each.kind is kind]

    def accepted(self) -> list[str]:
        """Return the runs whose submission a gateway acknowledged, in the order of the submissions."""
        accepted = (
            each.run_id for each in self.operations if each.kind is Kind.SUBMIT and each.is_known and each.run_id
        )
        return list(dict.fromkeys(accepted))

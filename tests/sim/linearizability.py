"""Is there an order in which the answers make sense? A search after Wing and Gong, for one run at a time.

The model is a run that somebody else drives: it may start, end and converge by itself at any moment. Each operation
must take effect at one moment between question and answer; one whose outcome nobody knows may do so at any later
moment, or never. What was answered says which moments are possible.
"""

from collections.abc import Sequence
from typing import Final

from tests.sim.history import ABSENT, CREATED, EXISTS, REFUSED, Kind, Operation

PENDING, RUNNING, CANCELLING = "PENDING", "RUNNING", "CANCELLING"
COMPLETED, FAILED, CANCELLED = "COMPLETED", "FAILED", "CANCELLED"

BY_ITSELF: Final[dict[str, tuple[str, ...]]] = {
    ABSENT: (),
    PENDING: (RUNNING, FAILED),
    RUNNING: (COMPLETED, FAILED),
    CANCELLING: (CANCELLED,),
    COMPLETED: (),
    FAILED: (),
    CANCELLED: (),
}


def reachable(state: str) -> set[str]:
    """The state, and those a run comes to from there by itself."""
    found = {state}
    for following in BY_ITSELF[state]:
        found |= reachable(following)
    return found


def effect(operation: Operation, state: str) -> str | None:
    """The state behind the operation, if it is done in this one; None if the answer does not fit."""
    behind = told = state
    match operation.kind:
        case Kind.SUBMIT:  # the same request again has the same answer, however far the run is by then
            behind, told = PENDING if state == ABSENT else state, PENDING
        case Kind.CREATE:
            behind, told = (PENDING, CREATED) if state == ABSENT else (state, EXISTS)
        case Kind.CANCEL:
            behind = told = CANCELLING if state in {PENDING, RUNNING} else state
        case Kind.GET | Kind.LOOK:  # last of a closed set
            pass
    return behind if not operation.is_known or operation.answer == told else None


def is_linearizable(operations: Sequence[Operation]) -> bool:
    """Can these operations on one run be put in an order that explains all answers?"""
    done = [each for each in operations if each.answer != REFUSED]
    return _Search([each for each in done if each.is_known or each.kind is not Kind.GET]).succeeds()


class _Search:
    """Tries all orders real time allows, each state of affairs once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = sorted(operations, key=lambda each: each.asked)
        self._failed: set[tuple[int, str]] = set()

    def succeeds(self) -> bool:
        everything = (1 << len(self._operations)) - 1
        return self._fits(everything, ABSENT)

    def _fits(self, left: int, state: str) -> bool:
        """Can what is left (a bit for each) be explained from here?"""
        if not any(each.is_known for _, each in self._each(left)):
            return True  # what nobody knows the outcome of need not happen
        if (left, state) in self._failed:
            return False
        for place, operation in self._first(left):
            for now in reachable(state):
                behind = effect(operation, now)
                if behind is not None and self._fits(left & ~(1 << place), behind):
                    return True
        self._failed.add((left, state))
        return False

    def _first(self, left: int) -> list[tuple[int, Operation]]:
        """Those that may come first: asked before any other was answered."""
        found = self._each(left)
        bound = min((each.answered for _, each in found if each.is_known and each.answered is not None), default=None)
        return [(place, each) for place, each in found if bound is None or each.asked <= bound]

    def _each(self, left: int) -> list[tuple[int, Operation]]:
        return [(place, each) for place, each in enumerate(self._operations) if left >> place & 1]

"""Checks that the answers about a run are linearizable, with the search of Wing and Gong.

The model is a run that another process drives: it may start, end and converge by itself at any moment. Each operation
must take effect at one moment between its request and its answer; one with an unknown outcome may take effect at any
later moment, or never. The answer says which moments are possible.
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
    """Return the state, and the states that a run can reach from it without an operation."""
    found = {state}
    for following in BY_ITSELF[state]:
        found |= reachable(following)
    return found


def effect(operation: Operation, state: str) -> str | None:
    """Return the state after the operation takes effect in this state; None if its answer does not fit."""
    after = expected = state
    match operation.kind:
        case Kind.SUBMIT:  # the same request again has the same answer, however far the run is by then
            after, expected = PENDING if state == ABSENT else state, PENDING
        case Kind.CREATE:
            after, expected = (PENDING, CREATED) if state == ABSENT else (state, EXISTS)
        case Kind.CANCEL:
            after = expected = CANCELLING if state in {PENDING, RUNNING} else state
        case Kind.GET | Kind.LOOK:  # last of a closed set
            pass
    return after if not operation.is_known or operation.answer == expected else None


def is_linearizable(operations: Sequence[Operation]) -> bool:
    """Return whether an order of these operations on one run explains all answers."""
    done = [each for each in operations if each.answer != REFUSED]
    return _Search([each for each in done if each.is_known or each.kind is not Kind.GET]).succeeds()


class _Search:
    """Tries all orders that real time allows, and each combination of open operations and state once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = sorted(operations, key=lambda each: each.asked)
        self._failed: set[tuple[int, str]] = set()

    def succeeds(self) -> bool:
        everything = (1 << len(self._operations)) - 1
        return self._fits(everything, ABSENT)

    def _fits(self, left: int, state: str) -> bool:
        """Return whether an order of the operations left (a bit each) explains their answers from this state."""
        if not any(each.is_known for _, each in self._each(left)):
            return True  # an operation with an unknown outcome need not take effect
        if (left, state) in self._failed:
            return False
        for place, operation in self._first(left):
            for now in reachable(state):
                after = effect(operation, now)
                if after is not None and self._fits(left & ~(1 << place), after):
                    return True
        self._failed.add((left, state))
        return False

    def _first(self, left: int) -> list[tuple[int, Operation]]:
        """Return the operations that may come first: those requested before any other was answered."""
        found = self._each(left)
        bound = min((each.answered for _, each in found if each.is_known and each.answered is not None), default=None)
        return [(place, each) for place, each in found if bound is None or each.asked <= bound]

    def _each(self, left: int) -> list[tuple[int, Operation]]:
        return [(place, each) for place, each in enumerate(self._operations) if left >> place & 1]

"""Joins: how each branch counts, and when the node where branches meet may run.

A join has one incoming edge for each branch. While a branch is running its edge is *pending*; when the branch's last
node has ended the edge is *settled* in one of five ways (:class:`Fate`), counted in an :class:`EdgeTally`. The policy
turns the tally into a :class:`Verdict`. No policy looks at a node.
"""

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum, auto, unique
from types import MappingProxyType
from typing import Final

import msgspec

from pyoco_server.core.payloads import JoinPolicy, SkipKind


@unique
class Fate(StrEnum):
    """How an edge was settled by the end of its source."""

    TAKEN = "taken"
    FAILED = SkipKind.FAILED.value
    ISOLATED = SkipKind.ISOLATED.value
    CANCELED = SkipKind.CANCELED.value
    DROPPED = SkipKind.DROPPED.value
    """Not chosen (the edge follows another outcome): the branch is no longer expected."""


class EdgeTally(msgspec.Struct, frozen=True, gc=False):
    """How many of a node's incoming edges were settled in which way."""

    inputs: int
    taken: int = 0
    failed: int = 0
    isolated: int = 0
    canceled: int = 0
    dropped: int = 0

    @property
    def settled(self) -> int:
        """Edges whose source has ended."""
        return self.taken + self.failed + self.isolated + self.canceled + self.dropped

    @property
    def pending(self) -> int:
        """Edges whose source has not ended."""
        return self.inputs - self.settled

    @property
    def expected(self) -> int:
        """Branches that can, or could have, arrived."""
        return self.inputs - self.dropped

    def plus(self, fate: Fate, count: int = 1) -> "EdgeTally":
        """Return the tally with ``count`` more edges settled in this way."""
        return msgspec.structs.replace(self, **{fate.value: getattr(self, fate.value) + count})

    def worst(self) -> SkipKind:
        """Return how a node counts for its successors if these edges keep it from running."""
        if self.failed:
            return SkipKind.FAILED
        if self.canceled:
            return SkipKind.CANCELED
        return SkipKind.ISOLATED if self.isolated else SkipKind.DROPPED


FATAL: Final = frozenset({SkipKind.FAILED, SkipKind.CANCELED})
"""What fails the execution unless a join can do without the branch."""


@unique
class Verdict(Enum):
    """What a tally means for its node: wait, run, or never run."""

    OPEN = auto()
    PASSES = auto()
    BLOCKED = auto()


JoinPredicate = Callable[[EdgeTally], bool]


def majority(tally: EdgeTally) -> bool:
    """More than half of the expected branches succeeded."""
    return tally.taken * 2 > tally.expected


PREDICATES: Final[Mapping[str, JoinPredicate]] = MappingProxyType({"majority": majority})
"""Predicates that every graph may name; more can be given to a graph."""


class JoinRule(msgspec.Struct, frozen=True, gc=False):
    """A policy with its parameters."""

    policy: JoinPolicy = JoinPolicy.ALL_SUCCESS
    required: int | None = None
    predicate: JoinPredicate | None = None

    def verdict(self, tally: EdgeTally) -> Verdict:
        """Judge ``tally``; a verdict other than OPEN does not change when more edges are settled.

        A node that is blocked, but not by a failure or a cancel, stays OPEN until all its edges are settled: one of
        them may still be a failure, and how the node counts for its successors must not depend on their order.
        """
        verdict = self._judge(tally)
        if verdict is Verdict.BLOCKED and tally.pending and tally.worst() not in FATAL:
            return Verdict.OPEN
        return verdict

    def _judge(self, tally: EdgeTally) -> Verdict:
        if tally.expected == 0:
            return Verdict.BLOCKED
        match self.policy:
            case JoinPolicy.ALL_SUCCESS:
                if tally.failed or tally.canceled or tally.isolated:
                    return Verdict.BLOCKED
                return Verdict.PASSES if tally.pending == 0 else Verdict.OPEN
            case JoinPolicy.ANY_SUCCESS:
                return _at_least(1, tally)
            case JoinPolicy.ALL_DONE:
                return Verdict.PASSES if tally.pending == 0 else Verdict.OPEN
            case JoinPolicy.CUSTOM:  # last of a closed set
                return self._custom(tally)

    def _custom(self, tally: EdgeTally) -> Verdict:
        if self.predicate is None:
            return _at_least(tally.expected if self.required is None else self.required, tally)
        if self.predicate(tally):
            return Verdict.PASSES
        return Verdict.OPEN if tally.pending else Verdict.BLOCKED


def _at_least(required: int, tally: EdgeTally) -> Verdict:
    if tally.taken >= required:
        return Verdict.PASSES
    return Verdict.OPEN if tally.taken + tally.pending >= required else Verdict.BLOCKED


WAITS_FOR_ALL: Final = JoinRule()
"""The rule of a node with several inputs that is not a Join."""
TAKES_THE_FIRST: Final = JoinRule(JoinPolicy.ANY_SUCCESS)
"""The rule of an end: the first branch reaches it."""

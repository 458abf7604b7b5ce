"""When branches meet: how each branch counts, and what the join makes of it.

A join looks at its incoming edges, one per branch. While a branch is under way its edge is *pending*; once the node at
its end is done the edge is settled in one of five ways, counted in a :class:`Tally`. The policy turns the tally into a
:class:`Verdict`, and that is all: no policy looks at a node.
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


class Tally(msgspec.Struct, frozen=True, gc=False):
    """How many of a node's incoming edges were settled in which way."""

    inputs: int
    taken: int = 0
    failed: int = 0
    isolated: int = 0
    canceled: int = 0
    dropped: int = 0

    @property
    def settled(self) -> int:
        """Edges whose fate is known."""
        return self.taken + self.failed + self.isolated + self.canceled + self.dropped

    @property
    def pending(self) -> int:
        """Edges whose fate is still open."""
        return self.inputs - self.settled

    @property
    def expected(self) -> int:
        """Branches that can, or could have, come in."""
        return self.inputs - self.dropped

    def plus(self, fate: Fate, count: int = 1) -> "Tally":
        """The tally with ``count`` more edges settled that way."""
        return msgspec.structs.replace(self, **{fate.value: getattr(self, fate.value) + count})

    def worst(self) -> SkipKind:
        """How a node counts, further on, if these edges keep it from running."""
        if self.failed:
            return SkipKind.FAILED
        if self.canceled:
            return SkipKind.CANCELED
        return SkipKind.ISOLATED if self.isolated else SkipKind.DROPPED


FATAL: Final = frozenset({SkipKind.FAILED, SkipKind.CANCELED})
"""What fails the execution unless a join absorbs it."""


@unique
class Verdict(Enum):
    """What a tally means for the node behind it."""

    OPEN = auto()
    PASSES = auto()
    BLOCKED = auto()


JoinPredicate = Callable[[Tally], bool]


def majority(tally: Tally) -> bool:
    """More than half of the expected branches came in."""
    return tally.taken * 2 > tally.expected


PREDICATES: Final[Mapping[str, JoinPredicate]] = MappingProxyType({"majority": majority})
"""Predicates every graph may name; a graph can be given more."""


class JoinRule(msgspec.Struct, frozen=True, gc=False):
    """A policy with what it needs to decide."""

    policy: JoinPolicy = JoinPolicy.ALL_SUCCESS
    required: int | None = None
    predicate: JoinPredicate | None = None

    def verdict(self, tally: Tally) -> Verdict:
        """Judge ``tally``; a verdict other than OPEN does not change when more edges are settled.

        A node that cannot run because of something harmless stays open while edges are: one of them may yet turn out
        not to be harmless, and how the node counts further on must not depend on which came first.
        """
        verdict = self._judge(tally)
        if verdict is Verdict.BLOCKED and tally.pending and tally.worst() not in FATAL:
            return Verdict.OPEN
        return verdict

    def _judge(self, tally: Tally) -> Verdict:
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

    def _custom(self, tally: Tally) -> Verdict:
        if self.predicate is None:
            return _at_least(tally.expected if self.required is None else self.required, tally)
        if self.predicate(tally):
            return Verdict.PASSES
        return Verdict.OPEN if tally.pending else Verdict.BLOCKED


def _at_least(required: int, tally: Tally) -> Verdict:
    if tally.taken >= required:
        return Verdict.PASSES
    return Verdict.OPEN if tally.taken + tally.pending >= required else Verdict.BLOCKED


WAITS_FOR_ALL: Final = JoinRule()
"""How any node with several inputs waits, if it is not a Join."""
TAKES_THE_FIRST: Final = JoinRule(JoinPolicy.ANY_SUCCESS)
"""How an end is reached: by whoever comes first."""

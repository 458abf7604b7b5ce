"""The verdict of each join policy on a tally."""

import pytest

from pyoco_server.core import JoinPolicy
from pyoco_server.core.joins import PREDICATES, WAITS_FOR_ALL, EdgeTally, Fate, JoinRule, Verdict, majority
from pyoco_server.core.payloads import SkipKind

OPEN, PASSES, BLOCKED = Verdict.OPEN, Verdict.PASSES, Verdict.BLOCKED
ALL = JoinRule(JoinPolicy.ALL_SUCCESS)
ANY = JoinRule(JoinPolicy.ANY_SUCCESS)
DONE = JoinRule(JoinPolicy.ALL_DONE)
TWO = JoinRule(JoinPolicy.CUSTOM, required=2)
MAJORITY = JoinRule(JoinPolicy.CUSTOM, predicate=majority)

# Three branches; the verdicts of ALL_SUCCESS, ANY_SUCCESS, ALL_DONE, CUSTOM with two of three, CUSTOM with a majority.
VERDICTS = [
    (EdgeTally(3), OPEN, OPEN, OPEN, OPEN, OPEN),
    (EdgeTally(3, taken=1), OPEN, PASSES, OPEN, OPEN, OPEN),
    (EdgeTally(3, taken=2), OPEN, PASSES, OPEN, PASSES, PASSES),
    (EdgeTally(3, taken=3), PASSES, PASSES, PASSES, PASSES, PASSES),
    (EdgeTally(3, failed=1), BLOCKED, OPEN, OPEN, OPEN, OPEN),
    (EdgeTally(3, canceled=1), BLOCKED, OPEN, OPEN, OPEN, OPEN),
    (EdgeTally(3, isolated=1), OPEN, OPEN, OPEN, OPEN, OPEN),
    (EdgeTally(2, isolated=1, taken=1), BLOCKED, PASSES, PASSES, BLOCKED, BLOCKED),
    (EdgeTally(3, dropped=1), OPEN, OPEN, OPEN, OPEN, OPEN),
    (EdgeTally(3, failed=2), BLOCKED, OPEN, OPEN, BLOCKED, OPEN),
    (EdgeTally(3, failed=3), BLOCKED, BLOCKED, PASSES, BLOCKED, BLOCKED),
    (EdgeTally(3, canceled=3), BLOCKED, BLOCKED, PASSES, BLOCKED, BLOCKED),
    (EdgeTally(3, taken=1, failed=1), BLOCKED, PASSES, OPEN, OPEN, OPEN),
    (EdgeTally(3, taken=1, failed=2), BLOCKED, PASSES, PASSES, BLOCKED, BLOCKED),
    (EdgeTally(3, taken=2, failed=1), BLOCKED, PASSES, PASSES, PASSES, PASSES),
    (EdgeTally(3, taken=1, dropped=1), OPEN, PASSES, OPEN, OPEN, OPEN),
    (EdgeTally(3, taken=1, dropped=2), PASSES, PASSES, PASSES, BLOCKED, PASSES),
    (EdgeTally(3, taken=2, dropped=1), PASSES, PASSES, PASSES, PASSES, PASSES),
    (EdgeTally(3, failed=1, dropped=2), BLOCKED, BLOCKED, PASSES, BLOCKED, BLOCKED),
    (EdgeTally(3, dropped=3), BLOCKED, BLOCKED, BLOCKED, BLOCKED, BLOCKED),
]
ROWS = [
    pytest.param(rule, tally, verdict, id=f"{name}-{number}")
    for number, (tally, *verdicts) in enumerate(VERDICTS)
    for name, rule, verdict in zip(
        ("all", "any", "done", "two", "majority"), (ALL, ANY, DONE, TWO, MAJORITY), verdicts, strict=True
    )
]


@pytest.mark.spec("003 §7.2")
@pytest.mark.parametrize(("rule", "tally", "verdict"), ROWS)
def test_verdict(rule: JoinRule, tally: EdgeTally, verdict: Verdict) -> None:
    assert rule.verdict(tally) is verdict


@pytest.mark.spec("003 §7.2")
def test_all_must_succeed_unless_said_otherwise() -> None:
    assert JoinRule() == WAITS_FOR_ALL == ALL


def test_majority_can_be_named() -> None:
    assert PREDICATES["majority"] is majority


@pytest.mark.parametrize("fate", Fate)
def test_settling_an_edge_leaves_fewer_pending(fate: Fate) -> None:
    tally = EdgeTally(3).plus(fate)
    assert (tally.settled, tally.pending) == (1, 2)
    assert tally.plus(fate, -1) == EdgeTally(3)


@pytest.mark.parametrize("fate", Fate)
def test_only_a_dropped_branch_is_no_longer_expected(fate: Fate) -> None:
    assert EdgeTally(3).plus(fate).expected == (2 if fate is Fate.DROPPED else 3)


@pytest.mark.parametrize(
    ("tally", "worst"),
    [
        (EdgeTally(4, failed=1, canceled=1, isolated=1, dropped=1), SkipKind.FAILED),
        (EdgeTally(4, canceled=1, isolated=1, dropped=1), SkipKind.CANCELED),
        (EdgeTally(4, isolated=1, dropped=1), SkipKind.ISOLATED),
        (EdgeTally(4, dropped=1), SkipKind.DROPPED),
    ],
)
def test_worst_of_what_kept_a_node_from_running(tally: EdgeTally, worst: SkipKind) -> None:
    assert tally.worst() is worst

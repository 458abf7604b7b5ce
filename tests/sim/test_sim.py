"""Simulates a fixed set of worlds. ``python -m tests.sim --minutes 10`` simulates more."""

import os

import pytest

from pyoco_server.core import fold
from pyoco_server.core.commands import COMMANDS
from tests.sim.checks import logged
from tests.sim.history import CREATED, EXISTS, Kind
from tests.sim.outside import EVERY, WHICH
from tests.sim.playing import describe, kept_seeds
from tests.sim.world import World, no_collecting, simulate

SEEDS = int(os.environ.get("PYOCO_SIM_SEEDS", "240"))
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_worlds_violate_no_invariant(first: int) -> None:
    failed = [
        describe(outcome, trace=False) for outcome in map(simulate, range(first, first + AT_ONCE)) if outcome.violations
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", kept_seeds())
def test_seeds_that_failed_before_violate_no_invariant(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.violations, describe(outcome, trace=False)


@pytest.mark.parametrize("seed", [3, 17, 42])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert first.trace == second.trace
    assert first == second


def test_different_seeds_give_different_traces() -> None:
    assert simulate(3).trace != simulate(4).trace


def test_worlds_have_runs_and_all_kinds_of_faults() -> None:
    outcomes = [*map(simulate, range(30))]
    assert sum(outcome.accepted for outcome in outcomes) > 60
    everything = {word for outcome in outcomes for line in outcome.trace for word in (line.what.split() or [""])[:1]}
    assert {"CRASH", "PAUSED", "CUT", "STOP", "starts"} <= everything
    fates = {line.what.rpartition("[")[2] for outcome in outcomes for line in outcome.trace if line.what.endswith("]")}
    assert {"lost]", "lost ack]", "stored but errored]", "ghost]", "slow]"} <= fates


def test_outsiders_give_every_command_with_every_kind_of_answer() -> None:
    """Gateways accept every command at least once, refuse some, leave some unanswered; executions end in every way."""
    worlds = [World(seed) for seed in range(WHICH, 20 * EVERY, EVERY)]
    with no_collecting():
        assert not [violation for world in worlds for violation in world.play().violations]
    given = [each for world in worlds for each in world.outside.given]
    others = {"CreateExecution", "CancelExecution"}
    assert {each.fields["type"] for each in given if each.is_taken} == {*COMMANDS} - others
    assert any(each.refusal is not None for each in given)
    assert any(not each.is_taken and each.refusal is None for each in given)
    answers = {(each.kind, each.answer) for world in worlds for each in world.history.operations}
    assert {(Kind.CREATE, CREATED), (Kind.CREATE, EXISTS), (Kind.CANCEL, "CANCELLING")} <= answers
    ended = {fold(logged(world, each)[0]).status for world in worlds for each in world.outside.executions}
    assert ended == {"COMPLETED", "FAILED", "CANCELED"}

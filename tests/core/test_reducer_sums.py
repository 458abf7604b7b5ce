"""The running sums and the version of a state, and folding a log."""

from collections import Counter

import pytest

from pyoco_server.core import ExecutionState, NodeStatus, fold, reduce
from pyoco_server.core.joins import EdgeTally
from pyoco_server.core.state import Counts
from tests.build import EXECUTION, Run, chain, diamond, event, state_of
from tests.core.samples import CREATED, any_event, nodes_in_every_status


def counted(state: ExecutionState) -> Counts:
    """How many nodes are in which status."""
    found = Counter(node.status.value.lower() for node in state.nodes.values())
    return Counts(**found)


def tallied(state: ExecutionState) -> dict[str, EdgeTally]:
    """How the edges into each Join or node with several inputs were settled; nodes with none settled are left out."""
    found: dict[str, EdgeTally] = {}
    for node in state.nodes.values():
        for edge in node.edges:
            target = state.nodes.get(edge.to)
            fate = node.fate(edge.on)
            if target is None or fate is None or (target.inputs < 2 and target.node_type != "Join"):
                continue
            found[edge.to] = found.get(edge.to, EdgeTally(target.inputs)).plus(fate)
    return found


# --- Versions and sums -----------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §2 ExecutionState", "003 §12.1")
def test_version_counts_the_events_of_a_log_this_package_wrote() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a", "b", "after")
    assert run.state.version == len(run.log)


RECORDS = [
    "EXECUTION_FAIL_REQUESTED",
    "NODE_PROGRESS_REPORTED",
    "NODE_RESUME_REQUESTED",
    "NODE_FAIL_REPORTED",
    "NODE_CANCEL_REQUESTED",
    "NODE_INTERRUPT_REQUESTED",
    "FORK_OPENED",
    "JOIN_GATE_UPDATED",
    "JOIN_PASSED",
]


@pytest.mark.parametrize("name", RECORDS)
def test_record_counts_each_time(name: str) -> None:
    state = state_of(*nodes_in_every_status())
    after = reduce(reduce(state, any_event(name, "RUNNING")), any_event(name, "RUNNING"))
    assert after.version == state.version + 2


REPEATS = [
    "EXECUTION_CREATED",
    "EXECUTION_STARTED",
    "EXECUTION_CANCEL_REQUESTED",
    "EXECUTION_CANCELED",
    "EXECUTION_FAILED",
    "EXECUTION_COMPLETED",
    "EXECUTION_ARCHIVED",
    "NODE_CREATED",
    "NODE_CANCELED",
    "NODE_SUCCEEDED",
    "NODE_STARTED",
    "NODE_READY",
]


@pytest.mark.parametrize("name", REPEATS)
def test_repeat_that_changes_nothing_is_refused(name: str) -> None:
    once = state_of(CREATED, any_event("NODE_CREATED"), any_event(name))
    assert reduce(once, any_event(name)) is once


def open_states() -> list[ExecutionState]:
    """Every state on the way through two runs."""
    found = []
    for join, last in (({"policy": "ANY_SUCCESS"}, "after"), ({"policy": "ALL_DONE"}, "b")):
        run = Run(diamond("a", "b", join=join))
        run.start("b")
        run.succeed("a")
        if run.status(last) is NodeStatus.READY:
            run.succeed(last)
        found += [fold(run.log[:end]) for end in range(1, len(run.log) + 1)]
    return found


@pytest.mark.parametrize("state", open_states(), ids=lambda state: str(state.version))
def test_sums_equal_a_recount(state: ExecutionState) -> None:
    assert counted(state) == state.counts
    assert tallied(state) == {target: tally for target, tally in state.tallies.items() if tally.settled}


def test_counts_equal_a_recount_after_convergence() -> None:
    state = state_of(*nodes_in_every_status(), event("EXECUTION_CANCELED"), any_event("NODE_CREATED", "late"))
    assert counted(state) == state.counts


def test_edge_is_tallied_again_when_a_stronger_end_arrives() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    state = reduce(run.state, any_event("NODE_FAILED", "a"))
    assert (state.tallies["j"].taken, state.tallies["j"].failed) == (0, 1)
    assert tallied(state)["j"] == state.tallies["j"]


# --- Folding ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("002 §10")
def test_fold_continues_from_a_state() -> None:
    run = Run(chain("a"))
    run.succeed("a")
    for cut in range(1, len(run.log)):
        assert fold(run.log[cut:], fold(run.log[:cut])) == run.state


def test_fold_takes_the_execution_from_the_first_event() -> None:
    assert fold([CREATED]).execution_id == EXECUTION


def test_fold_of_nothing_needs_a_state() -> None:
    with pytest.raises(ValueError, match="an empty log"):
        fold([])
    state = state_of(CREATED)
    assert fold([], state) is state

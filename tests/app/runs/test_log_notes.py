"""A log that fits together has no notes; each contradiction in one has a sentence."""

from collections.abc import Sequence

import pytest

from pyoco_server.app.runs.log_notes import MOST_NOTES, log_notes
from pyoco_server.core import Event, decode_event, fold, initial_state, read_graph
from tests.build import Run, chain, event
from tests.golden.files import all_cases, load


def notes_of(events: Sequence[Event]) -> list[str]:
    """The notes on these events."""
    return log_notes(read_graph(events), events, fold(events, initial_state(events[0].execution_id)))


OF_OTHER_PROGRAMS = ["foreign-log", "foreign-log-cancelled"]
"""Logs in which another program wrote what it liked."""


@pytest.mark.parametrize("case", OF_OTHER_PROGRAMS)
def test_a_log_in_which_another_program_wrote_has_notes(case: str) -> None:
    assert notes_of([decode_event(line) for line in load(case).lines]) != []


@pytest.mark.parametrize("case", sorted({*all_cases()} - {*OF_OTHER_PROGRAMS}))
def test_a_recorded_log_has_no_notes(case: str) -> None:
    assert notes_of([decode_event(line) for line in load(case).lines]) == []


@pytest.mark.parametrize(
    ("added", "note"),
    [
        (event("NODE_SUCCEEDED", nodeId="gone", attempt=1), "NODE_SUCCEEDED of node 'gone', contradicts"),
        (event("NODE_STARTED", nodeId="a", attempt=1), "NODE_STARTED of node 'a', contradicts"),
        (event("EXECUTION_CREATED", graphId="other"), "EXECUTION_CREATED, contradicts"),
        (event("EXECUTION_FAILED"), "EXECUTION_FAILED: the run had ended at event"),
    ],
)
def test_an_event_that_contradicts_those_before_it_has_a_note(added: Event, note: str) -> None:
    run = Run(chain("a"))
    run.succeed("a")
    [found] = notes_of([*run.log, added])
    assert found.startswith(f"event {len(run.log) + 1}, {note}")


def test_a_completed_run_whose_node_never_ran_has_a_note() -> None:
    run = Run(chain("a", "b"))
    run.succeed("a")
    notes = notes_of([*run.log, event("EXECUTION_COMPLETED")])
    assert "the run is COMPLETED, and node 'b' of its graph is READY" in notes


def test_a_log_that_is_wrong_many_times_has_a_bounded_number_of_notes() -> None:
    run = Run(chain("a"))
    wrong = [event("NODE_SUCCEEDED", nodeId=f"n{number}", attempt=1) for number in range(MOST_NOTES + 7)]
    notes = notes_of([*run.log, *wrong])
    assert (len(notes), notes[-1]) == (MOST_NOTES + 1, "7 more of the same kind")

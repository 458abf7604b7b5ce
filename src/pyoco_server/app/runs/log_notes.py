"""Sentences about what does not fit together in a log, for the people who read it.

A log is a record: nothing is refused or changed because of what is noted here. Every log that this package writes has
no notes.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from pyoco_server.core import Event, EventType, ExecutionState, ExecutionStatus, LoggedGraph, initial_state, reduce
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.payloads import NodePayload

_ENDS: Final = frozenset({EventType.EXECUTION_COMPLETED, EventType.EXECUTION_FAILED, EventType.EXECUTION_CANCELED})
MOST_NOTES: Final = 50
"""Further notes of a kind are counted only: a log may be wrong ten thousand times."""


def log_notes(found: LoggedGraph, events: Sequence[Event], state: ExecutionState) -> list[str]:
    """Return one sentence for each contradiction; ``found`` and ``state`` are what was read from ``events``."""
    notes = [*found.notes]
    if events and events[0].type is not EventType.EXECUTION_CREATED:
        notes.append(f"the log begins with {events[0].type.value}, not with EXECUTION_CREATED")
    if state.version != len(events):  # every event that has an effect counts
        notes += _limited(_without_effect(events, state.execution_id))
    notes += _limited(_further_ends(events))
    if state.status is ExecutionStatus.COMPLETED:
        notes += _limited(_left_behind(found, state))
    return notes


def _limited(notes: Iterator[str]) -> list[str]:
    shown = [*islice(notes, MOST_NOTES)]
    left = sum(1 for _ in notes)
    return [*shown, f"{left} more of the same kind"] if left else shown


def _without_effect(events: Sequence[Event], execution_id: str) -> Iterator[str]:
    """Events that contradict those before them: reading the log skips them."""
    state = initial_state(execution_id)
    for number, event in enumerate(events, start=1):
        after = reduce(state, event)
        if after is state:
            payload = event.payload
            about = f" of node '{payload.node_id}'" if isinstance(payload, NodePayload) else ""
            yield f"event {number}, {event.type.value}{about}, contradicts the events before it and has no effect"
        state = after


def _further_ends(events: Sequence[Event]) -> Iterator[str]:
    """Ends behind the first one, which is the one that counts."""
    ends = [(number, event.type) for number, event in enumerate(events, start=1) if event.type in _ENDS]
    for number, kind in ends[1:]:
        yield f"event {number}, {kind.value}: the run had ended at event {ends[0][0]}, {ends[0][1].value}"


def _left_behind(found: LoggedGraph, state: ExecutionState) -> Iterator[str]:
    """Nodes that a completed run never finished: workers of older versions could complete a run without them."""
    for node_id, in_graph in found.graph.nodes.items():
        node = state.nodes.get(node_id)
        if node is not None and not node.is_terminal and in_graph.node_type not in CONTROL:
            yield f"the run is COMPLETED, and node '{node_id}' of its graph is {node.status.value}"

"""The order in which events that share a batch are applied."""

import itertools
from typing import Any

import pytest

from pyoco_server.core import CancelMode, Event, EventType, ExecutionStatus, NodeStatus, advance, fold, order_batch
from pyoco_server.core.events import BATCH_PLACE
from tests.build import Run, chain, command, event, state_of, types

ONE_OF_EACH_CLASS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("EXECUTION_CANCEL_REQUESTED", {}),
    ("EXECUTION_CANCELED", {}),
    ("NODE_FAILED", {"nodeId": "a"}),
    ("NODE_SUCCEEDED", {"nodeId": "b"}),
    ("NODE_STARTED", {"nodeId": "c", "attempt": 1}),
)
EXPECTED_CLASS = {
    "EXECUTION_CREATED": 0,
    "NODE_CREATED": 0,
    "EXECUTION_CANCEL_REQUESTED": 1,
    "NODE_CANCEL_REQUESTED": 1,
    "NODE_INTERRUPT_REQUESTED": 1,
    "NODE_CANCELED": 1,
    "EXECUTION_CANCELED": 1,
    "EXECUTION_FAIL_REQUESTED": 2,
    "NODE_FAIL_REPORTED": 2,
    "NODE_FAILED": 2,
    "EXECUTION_FAILED": 2,
    "NODE_SUCCEEDED": 3,
    "EXECUTION_COMPLETED": 3,
    "EXECUTION_STARTED": 4,
    "EXECUTION_ARCHIVED": 4,
    "NODE_READY": 4,
    "NODE_STARTED": 4,
    "NODE_PROGRESS_REPORTED": 4,
    "NODE_WAITING": 4,
    "NODE_RESUME_REQUESTED": 4,
    "NODE_RESUMED": 4,
    "FORK_OPENED": 4,
    "JOIN_GATE_UPDATED": 4,
    "JOIN_PASSED": 4,
}


@pytest.mark.spec("003 §10")
@pytest.mark.parametrize("event_type", EventType)
def test_class_of_every_event(event_type: EventType) -> None:
    assert BATCH_PLACE[event_type][0] == EXPECTED_CLASS[event_type]


@pytest.mark.spec("003 §10")
@pytest.mark.parametrize("given", list(itertools.permutations(ONE_OF_EACH_CLASS)))
def test_independent_events_are_ordered_by_class(given: tuple[tuple[str, dict[str, Any]], ...]) -> None:
    batch = [event(name, **fields) for name, fields in given]
    assert types(order_batch(batch)) == [name for name, _ in ONE_OF_EACH_CLASS]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (event("EXECUTION_CANCEL_REQUESTED"), event("EXECUTION_CANCELED")),
        (event("NODE_CANCEL_REQUESTED", nodeId="a"), event("NODE_CANCELED", nodeId="a")),
        (event("NODE_INTERRUPT_REQUESTED", nodeId="a"), event("NODE_CANCELED", nodeId="a")),
        (event("NODE_CANCELED", nodeId="a"), event("EXECUTION_CANCELED")),
        (event("NODE_FAIL_REPORTED", nodeId="a"), event("NODE_FAILED", nodeId="a")),
        (event("EXECUTION_FAIL_REQUESTED"), event("EXECUTION_FAILED")),
        (event("NODE_FAILED", nodeId="a"), event("EXECUTION_FAILED")),
        (event("NODE_SUCCEEDED", nodeId="a"), event("EXECUTION_COMPLETED")),
        (event("EXECUTION_CREATED", graphId="g"), event("NODE_CREATED", nodeId="a", nodeType="Task")),
        (event("NODE_CREATED", nodeId="a", nodeType="Task"), event("EXECUTION_CANCEL_REQUESTED")),
    ],
    ids=lambda found: found.type,
)
@pytest.mark.spec("003 §10")
def test_a_request_comes_before_its_fulfilment(first: Event, second: Event) -> None:
    assert order_batch([second, first]) == [first, second]


@pytest.mark.spec("003 §10")
def test_progress_keeps_the_order_given() -> None:
    batch = [
        event("NODE_STARTED", nodeId="a", attempt=1),
        event("NODE_READY", nodeId="b"),
        event("NODE_WAITING", nodeId="a"),
        event("NODE_READY", nodeId="c"),
    ]
    assert order_batch(batch) == batch


@pytest.mark.spec("003 §10")
def test_equal_events_keep_the_order_given() -> None:
    batch = [event("NODE_SUCCEEDED", nodeId=node_id) for node_id in "cab"]
    assert order_batch(batch) == batch


@pytest.mark.spec("003 §10")
def test_ordering_an_ordered_batch_changes_nothing() -> None:
    ordered = order_batch(event(name, **fields) for name, fields in reversed(ONE_OF_EACH_CLASS))
    assert order_batch(ordered) == ordered


def test_empty_batch_stays_empty() -> None:
    assert order_batch([]) == []


def family(*described: tuple[str, dict[str, Any]]) -> list[Event]:
    """Events each of which was caused by the one before."""
    made: list[Event] = []
    for name, fields in described:
        made.append(event(name, causation_id=made[-1].event_id if made else None, **fields))
    return made


@pytest.mark.spec("003 §10")
def test_events_of_one_command_keep_their_causal_order() -> None:
    made = family(
        ("NODE_SUCCEEDED", {"nodeId": "a"}),
        ("NODE_READY", {"nodeId": "b"}),
        ("NODE_STARTED", {"nodeId": "b", "attempt": 1}),
        ("NODE_FAILED", {"nodeId": "b"}),
        ("EXECUTION_FAILED", {}),
    )
    assert order_batch(made) == made


@pytest.mark.spec("003 §10")
def test_an_event_and_those_it_caused_are_ordered_by_the_first() -> None:
    success = family(("NODE_SUCCEEDED", {"nodeId": "a"}), ("NODE_READY", {"nodeId": "b"}))
    cancel = family(("EXECUTION_CANCEL_REQUESTED", {}), ("NODE_CANCELED", {"nodeId": "b"}), ("EXECUTION_CANCELED", {}))
    interleaved = [success[0], cancel[0], success[1], cancel[1], cancel[2]]
    assert order_batch(interleaved) == cancel + success


@pytest.mark.spec("003 §10")
def test_an_event_caused_outside_the_batch_is_ordered_alone() -> None:
    late = event("NODE_SUCCEEDED", nodeId="a", causation_id="99999999-0000-4000-8000-000000000000")
    cancel = event("EXECUTION_CANCEL_REQUESTED")
    assert order_batch([late, cancel]) == [cancel, late]


@pytest.mark.spec("003 §10")
@pytest.mark.parametrize("ending", ["EXECUTION_COMPLETED", "EXECUTION_FAILED"])
def test_cancel_wins_when_an_ordered_batch_is_folded(ending: str) -> None:
    before = state_of(event("EXECUTION_CREATED", graphId="g"))
    batch = [event(ending), event("EXECUTION_CANCELED"), event("EXECUTION_CANCEL_REQUESTED")]
    after = fold(order_batch(batch), before)
    assert after.status is ExecutionStatus.CANCELED
    assert after.completed_at is None
    assert after.failed_at is None


@pytest.mark.spec("003 §10")
@pytest.mark.parametrize("order", list(itertools.permutations(("cancel", "fail", "succeed"))), ids="-".join)
def test_commits_of_racing_commands_end_canceled_in_any_order(order: tuple[str, ...]) -> None:
    """Three callers decide on the same state; the execution ends canceled in whatever order they commit."""
    run = Run(chain("a"))
    run.start("a")
    commits = {
        "cancel": _commit(run, "CancelExecution"),
        "fail": _commit(run, "FailNode", "a"),
        "succeed": _commit(run, "SucceedNode", "a"),
    }
    batch = [made for name in order for made in commits[name]]
    after = fold(order_batch(batch), run.state)
    assert after.status is ExecutionStatus.CANCELED
    assert after.nodes["z"].status is NodeStatus.CANCELED


def _commit(run: Run, name: str, node_id: str | None = None) -> list[Event]:
    return advance(
        run.graph,
        run.state,
        command(name, node_id),
        now=run.now,
        new_id=run.new_id,
        cancel_mode=CancelMode.IMMEDIATE,
    )

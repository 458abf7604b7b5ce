"""An execution ends in the terminal status that a program outside recorded for it; a cancel in the log still wins."""

import random
from collections.abc import Sequence

import pytest

from pyoco_server.adapters.system import uuid_maker
from pyoco_server.core import (
    Actor,
    ActorKind,
    Event,
    ExecutionState,
    ExecutionStatus,
    NodeStatus,
    adopt_end,
    advance,
    cancel_after_end,
    fold,
    initial_state,
    orchestrate,
)
from pyoco_server.core.commands import (
    ArchiveExecution,
    CancelExecution,
    Command,
    CreateExecution,
    StartExecution,
    StartNode,
)
from tests.build import T0, Ids, graph
from tests.invariants import check_log

_OUTSIDE = Actor(ActorKind.EXTERNAL, "ruby-1")
_ME = Actor(ActorKind.SYSTEM, "w1")
_GRAPH = graph("s:Start a b z:Success", "s>a a>b b>z", a={"retries": 2, "task": "first"})
_CREATE = CreateExecution(execution_id="e", actor=_ME, graph_id="g")
_START = StartExecution(execution_id="e", actor=_ME)
_START_A = StartNode(execution_id="e", actor=_ME, node_id="a", attempt=1, worker_id="w1")
_CANCEL = CancelExecution(execution_id="e", actor=_ME, reason="enough")
_ENDS = (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELED)
_EXTRA = {"adopted": {"worker_id": "ruby-1"}}
_NEW_ID = uuid_maker(random.Random(1))
_ERROR = {"code": "EXTERNAL_WORKER", "message": "no luck"}


def _log(*commands: Command) -> list[Event]:
    state, log, new_id = initial_state("e"), list[Event](), Ids()
    for command in commands:
        made = advance(_GRAPH, state, command, now=T0, new_id=new_id)
        state = fold(made, state)
        log += made
    return log


def _ended(state: ExecutionState, status: ExecutionStatus) -> list[Event]:
    return adopt_end(
        state, status, reason="recorded outside", error=_ERROR, extra=_EXTRA, actor=_OUTSIDE, now=T0, new_id=_NEW_ID
    )


def _cancelled_late(state: ExecutionState) -> list[Event]:
    return cancel_after_end(state, reason="enough", actor=_OUTSIDE, now=T0, new_id=_NEW_ID)


def _types(events: Sequence[Event]) -> list[str]:
    return [event.type.value for event in events]


@pytest.mark.parametrize("status", _ENDS)
@pytest.mark.parametrize("before", [(_CREATE,), (_CREATE, _START), (_CREATE, _START, _START_A)])
def test_adopted_end_has_the_recorded_status_from_any_state(
    status: ExecutionStatus, before: tuple[Command, ...]
) -> None:
    log = _log(*before)
    state = fold(log)
    events = _ended(state, status)
    after = fold(events, state)
    assert after.status is status
    assert not list(after.live_nodes())
    assert (events[-1].actor, events[-1].payload.extra) == (_OUTSIDE, _EXTRA)
    assert orchestrate(_GRAPH, after, now=T0, new_id=Ids()) == []
    check_log(_GRAPH, [*log, *events], after)


def test_a_cancel_that_was_not_in_the_log_is_recorded_before_its_end() -> None:
    types = _types(_ended(fold(_log(_CREATE)), ExecutionStatus.CANCELED))
    assert (types[0], types[-1]) == ("EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED")


def test_adopted_end_asks_a_running_task_to_stop() -> None:
    state = fold(_log(_CREATE, _START, _START_A))
    events = _ended(state, ExecutionStatus.COMPLETED)
    assert _types(events) == ["NODE_INTERRUPT_REQUESTED", "NODE_CANCELED", "EXECUTION_COMPLETED"]
    assert fold(events, state).nodes["a"].status is NodeStatus.CANCELED


def test_adopted_failure_keeps_the_recorded_error() -> None:
    state = fold(_log(_CREATE))
    after = fold(_ended(state, ExecutionStatus.FAILED), state)
    assert after.failure == {"reason": "recorded outside", "failedNodeId": None, "error": _ERROR}


@pytest.mark.parametrize("status", _ENDS)
def test_a_cancel_in_the_log_wins(status: ExecutionStatus) -> None:
    state = fold(_log(_CREATE, _START, _START_A, _CANCEL))
    events = _ended(state, status)
    after = fold(events, state)
    assert (after.status, after.cancel_reason) == (ExecutionStatus.CANCELED, "enough")
    assert events[-1].payload.extra == _EXTRA


@pytest.mark.parametrize("status", _ENDS)
def test_adopted_end_changes_nothing_in_an_ended_or_unknown_execution(status: ExecutionStatus) -> None:
    ended = fold(_log(_CREATE))
    assert _ended(fold(_ended(ended, ExecutionStatus.FAILED), ended), status) == []
    assert _ended(initial_state("e"), status) == []


@pytest.mark.parametrize("status", _ENDS)
def test_a_cancel_that_was_accepted_before_the_end_was_shown_wins(status: ExecutionStatus) -> None:
    log = _log(_CREATE, _START, _START_A)
    log += _ended(fold(log), status)
    state = fold(log)
    events = _cancelled_late(state)
    after = fold(events, state)
    assert after.status is ExecutionStatus.CANCELED
    if status is ExecutionStatus.CANCELED:
        assert events == []
        return
    assert _types(events) == ["EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED"]
    assert events[0].actor == _OUTSIDE
    assert (after.is_cancel_requested, after.cancel_reason) == (True, "enough")
    assert orchestrate(_GRAPH, after, now=T0, new_id=Ids()) == []


def test_a_late_cancel_changes_nothing_before_the_end_or_in_an_archive() -> None:
    log = _log(_CREATE, _START)
    assert _cancelled_late(fold(log)) == []
    log += _ended(fold(log), ExecutionStatus.COMPLETED)
    archived = advance(_GRAPH, fold(log), ArchiveExecution(execution_id="e", actor=_ME), now=T0, new_id=Ids())
    assert _cancelled_late(fold([*log, *archived])) == []

"""Which command is accepted in which state, the events it becomes, and how it is refused otherwise."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pyoco_server.core import (
    CommandRejected,
    DecodeError,
    Event,
    ExecutionState,
    ExecutionStatus,
    NodeStatus,
    RejectionCode,
    fold,
    handle,
    initial_state,
    state_to_dict,
)
from tests.build import EXECUTION, T0, Ids, command, event, payload, state_of, types
from tests.core.shapes import COMMANDS
from tests.core.states import cancel_requested, created, ended, started, with_node

TAKEN = "taken"
NOTHING = "nothing to do"
WRONG = RejectionCode.NODE_STATUS
OVER = RejectionCode.NODE_TERMINAL

NODE_VERDICTS = {
    # the node is:        IDLE   READY    RUNNING  WAITING  SUCCEEDED, FAILED, CANCELED
    "MarkNodeReady": (TAKEN, NOTHING, WRONG, WRONG, OVER, OVER, OVER),
    "StartNode": (WRONG, TAKEN, NOTHING, WRONG, OVER, OVER, OVER),
    "ReportNodeProgress": (WRONG, WRONG, TAKEN, WRONG, OVER, OVER, OVER),
    "PutNodeWaiting": (WRONG, WRONG, TAKEN, WRONG, OVER, OVER, OVER),
    "RequestResumeNode": (WRONG, WRONG, WRONG, TAKEN, OVER, OVER, OVER),
    "ResumeNode": (WRONG, WRONG, WRONG, TAKEN, OVER, OVER, OVER),
    "SucceedNode": (WRONG, WRONG, TAKEN, WRONG, OVER, OVER, OVER),
    "FailNode": (WRONG, WRONG, TAKEN, TAKEN, OVER, OVER, OVER),
}

EXECUTIONS: dict[str, list[Event]] = {
    "absent": [],
    "created": created(),
    "started": started(),
    "asked to cancel": cancel_requested(),
    "completed": ended(ExecutionStatus.COMPLETED),
    "failed": ended(ExecutionStatus.FAILED),
    "canceled": ended(ExecutionStatus.CANCELED),
    "archived": [*ended(ExecutionStatus.FAILED), event("EXECUTION_ARCHIVED")],
}
NOT_THERE = RejectionCode.EXECUTION_NOT_FOUND
EXISTS = RejectionCode.EXECUTION_EXISTS
ENDED = RejectionCode.EXECUTION_TERMINAL
GOES_ON = RejectionCode.EXECUTION_NOT_TERMINAL
CANCELING = RejectionCode.CANCEL_REQUESTED

EXECUTION_VERDICTS = {
    # the execution is:    absent created  started asked to cancel completed, failed, canceled, archived
    "CreateExecution": (TAKEN, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS),
    "StartExecution": (NOT_THERE, TAKEN, NOTHING, CANCELING, ENDED, ENDED, ENDED, ENDED),
    "CancelExecution": (NOT_THERE, TAKEN, TAKEN, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING),
    "ArchiveExecution": (NOT_THERE, GOES_ON, GOES_ON, GOES_ON, TAKEN, TAKEN, TAKEN, NOTHING),
}

# What a command becomes: the situation, the command's own fields, and the events with what they say.
BY_ANN = {"kind": "user", "id": "ann"}
ERROR = {"code": "E", "message": "broke"}
BECOMES: dict[str, tuple[NodeStatus | str, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    "CreateExecution": (
        "absent",
        {"graphId": "g", "input": {"x": 1}},
        [("EXECUTION_CREATED", {"graphId": "g", "input": {"x": 1}})],
    ),
    "StartExecution": ("created", {"startedBy": BY_ANN}, [("EXECUTION_STARTED", {"startedBy": BY_ANN})]),
    "CancelExecution": (
        "started",
        {"reason": "enough"},
        [("EXECUTION_CANCEL_REQUESTED", {"reason": "enough", "requestedBy": BY_ANN})],
    ),
    "ArchiveExecution": ("completed", {"reason": "old"}, [("EXECUTION_ARCHIVED", {"reason": "old"})]),
    "MarkNodeReady": (NodeStatus.IDLE, {}, [("NODE_READY", {})]),
    "StartNode": (NodeStatus.READY, {"workerId": "w"}, [("NODE_STARTED", {"attempt": 1, "workerId": "w"})]),
    "ReportNodeProgress": (
        NodeStatus.RUNNING,
        {"progress": 40, "message": "on it", "metrics": {"rows": 2}},
        [("NODE_PROGRESS_REPORTED", {"progress": 40, "message": "on it", "metrics": {"rows": 2}, "attempt": 1})],
    ),
    "PutNodeWaiting": (
        NodeStatus.RUNNING,
        {"waitKey": "k", "prompt": {"ask": "?"}},
        [("NODE_WAITING", {"waitKey": "k", "prompt": {"ask": "?"}, "attempt": 1})],
    ),
    "RequestResumeNode": (
        NodeStatus.WAITING,
        {"resumeKey": "key"},
        [("NODE_RESUME_REQUESTED", {"resumeKey": "key", "requestedBy": BY_ANN, "attempt": 1})],
    ),
    "ResumeNode": (NodeStatus.WAITING, {"resumeKey": "key"}, [("NODE_RESUMED", {"attempt": 1})]),
    "SucceedNode": (
        NodeStatus.RUNNING,
        {"output": {"x": 1}},
        [("NODE_SUCCEEDED", {"output": {"x": 1}, "attempt": 1})],
    ),
    "FailNode": (
        NodeStatus.RUNNING,
        {"error": ERROR},
        [("NODE_FAIL_REPORTED", {"error": ERROR, "attempt": 1}), ("NODE_FAILED", {"error": ERROR, "attempt": 1})],
    ),
}


def spec_of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spec(COMMANDS[name].section)


EACH_COMMAND = [pytest.param(name, marks=spec_of(name)) for name in BECOMES]
EACH_NODE_VERDICT = [
    pytest.param(name, status, verdict, id=f"{name}-{status}", marks=spec_of(name))
    for name, verdicts in NODE_VERDICTS.items()
    for status, verdict in zip(NodeStatus, verdicts, strict=True)
]
EACH_EXECUTION_VERDICT = [
    pytest.param(name, situation, verdict, id=f"{name}-{situation}", marks=spec_of(name))
    for name, verdicts in EXECUTION_VERDICTS.items()
    for situation, verdict in zip(EXECUTIONS, verdicts, strict=True)
]


def given(name: str, **fields: Any) -> Any:
    """The command with the fields it needs and no more."""
    if name == "CreateExecution":
        return command(name, **{"graphId": "g"} | fields)
    return command(name, "a" if name in NODE_VERDICTS else None, **fields)


def situation(name: str) -> ExecutionState:
    """The state in which :data:`BECOMES` gives the command."""
    where = BECOMES[name][0]
    return state_of(*(with_node(where) if isinstance(where, NodeStatus) else EXECUTIONS[where]))


def answer(state: ExecutionState, asked: Any, **options: Any) -> list[Event]:
    return handle(state, asked, now=T0, new_id=Ids(), **options)


def verdict_on(state: ExecutionState, asked: Any, **options: Any) -> str:
    try:
        return TAKEN if answer(state, asked, **options) else NOTHING
    except CommandRejected as rejected:
        return rejected.code


# --- Which command is taken when -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "status", "verdict"), EACH_NODE_VERDICT)
def test_the_status_of_the_node_decides(name: str, status: NodeStatus, verdict: str) -> None:
    assert verdict_on(state_of(*with_node(status)), given(name)) == verdict


@pytest.mark.parametrize(("name", "where", "verdict"), EACH_EXECUTION_VERDICT)
def test_the_status_of_the_execution_decides(name: str, where: str, verdict: str) -> None:
    assert verdict_on(state_of(*EXECUTIONS[where]), given(name)) == verdict


@pytest.mark.spec("001 §3.1")
@pytest.mark.parametrize("how", [ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELED])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "ArchiveExecution"])
def test_after_the_end_no_command_becomes_an_event(name: str, how: ExecutionStatus) -> None:
    assert verdict_on(state_of(*ended(how)), given(name)) != TAKEN


@pytest.mark.spec("001 §3.1")
@pytest.mark.parametrize("status", NodeStatus)
@pytest.mark.parametrize("name", NODE_VERDICTS)
def test_the_end_of_the_execution_is_checked_before_the_node(name: str, status: NodeStatus) -> None:
    assert verdict_on(state_of(*ended(ExecutionStatus.FAILED, status)), given(name)) == ENDED


@pytest.mark.spec("001 §3.2", "001 §7")
@pytest.mark.parametrize("status", NodeStatus)
@pytest.mark.parametrize("name", NODE_VERDICTS)
def test_after_a_cancel_request_nothing_moves_a_node(name: str, status: NodeStatus) -> None:
    assert verdict_on(state_of(*cancel_requested(status)), given(name)) == CANCELING


@pytest.mark.spec("001 §3.2")
def test_after_a_cancel_request_the_execution_cannot_be_started() -> None:
    state = state_of(*created(), event("EXECUTION_CANCEL_REQUESTED"))
    assert verdict_on(state, given("StartExecution")) == CANCELING


@pytest.mark.spec("001 §7", "001 §4.3")
@pytest.mark.parametrize("status", NodeStatus)
def test_a_cancel_is_taken_whatever_the_nodes_are_doing(status: NodeStatus) -> None:
    assert types(answer(state_of(*with_node(status)), given("CancelExecution"))) == ["EXECUTION_CANCEL_REQUESTED"]


@pytest.mark.spec("001 §3.2", "001 §4.3")
def test_a_cancel_may_be_asked_for_twice() -> None:
    assert answer(state_of(*cancel_requested()), given("CancelExecution")) == []


@pytest.mark.spec("001 §4.1")
@pytest.mark.parametrize(("graph_ids", "verdict"), [({"g"}, TAKEN), (set(), "GRAPH_NOT_FOUND"), (None, TAKEN)])
def test_an_execution_needs_a_graph_that_exists(graph_ids: set[str] | None, verdict: str) -> None:
    assert verdict_on(initial_state(EXECUTION), given("CreateExecution"), graph_ids=graph_ids) == verdict


@pytest.mark.spec("001 §4.2")
def test_a_created_execution_counts_as_active() -> None:
    assert state_of(*created()).status is ExecutionStatus.ACTIVE
    assert types(answer(state_of(*created()), given("StartExecution"))) == ["EXECUTION_STARTED"]


# --- What a command becomes ------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §0")
@pytest.mark.parametrize("name", EACH_COMMAND)
def test_a_command_becomes_its_events(name: str) -> None:
    _, fields, expected = BECOMES[name]
    node = {"nodeId": "a"} if name in NODE_VERDICTS else {}
    made = answer(situation(name), given(name, **fields))
    assert [(found.type, payload(found)) for found in made] == [(kind, node | said) for kind, said in expected]


@pytest.mark.spec("001 §0")
@pytest.mark.parametrize("name", EACH_COMMAND)
def test_handling_a_command_changes_no_state(name: str) -> None:
    state = situation(name)
    before = state_to_dict(state)
    answer(state, given(name))
    assert state_to_dict(state) == before


@pytest.mark.parametrize("name", EACH_COMMAND)
def test_extra_fields_of_a_command_are_copied_into_its_event(name: str) -> None:
    made = answer(situation(name), given(name, note={"ticket": 7}))
    assert payload(made[0])["note"] == {"ticket": 7}


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize("name", EACH_COMMAND)
def test_events_have_the_actor_and_the_correlation_of_their_command(name: str) -> None:
    fields = {"actor": {"kind": "scheduler", "id": "s1"}, "correlationId": "request-9"}
    for found in answer(situation(name), given(name, **fields)):
        assert (found.execution_id, found.occurred_at) == (EXECUTION, T0)
        assert (found.actor.kind, found.actor.id) == ("scheduler", "s1")
        assert found.correlation_id == "request-9"


@pytest.mark.spec("001 §2")
def test_each_event_names_the_one_that_caused_it() -> None:
    state = state_of(*with_node(NodeStatus.RUNNING))
    reported, failed = answer(state, given("FailNode", causationId="earlier"))
    assert (reported.causation_id, failed.causation_id) == ("earlier", reported.event_id)


@pytest.mark.spec("001 §4.9", "001 §4.3")
@pytest.mark.parametrize("name", ["CancelExecution", "RequestResumeNode"])
def test_a_command_may_name_another_requester(name: str) -> None:
    bob = {"kind": "user", "id": "bob"}
    (made,) = answer(situation(name), given(name, requestedBy=bob))
    assert payload(made)["requestedBy"] == bob


# --- Refusals and repeats --------------------------------------------------------------------------------------------

REFUSED: dict[RejectionCode, tuple[list[Event], Any]] = {
    RejectionCode.WRONG_EXECUTION: (started(), given("CancelExecution", executionId="run-2")),
    RejectionCode.EXECUTION_NOT_FOUND: ([], given("CancelExecution")),
    RejectionCode.EXECUTION_EXISTS: (created(), given("CreateExecution")),
    RejectionCode.EXECUTION_TERMINAL: (ended(ExecutionStatus.COMPLETED), given("StartNode")),
    RejectionCode.EXECUTION_NOT_TERMINAL: (started(), given("ArchiveExecution")),
    RejectionCode.CANCEL_REQUESTED: (cancel_requested(), given("SucceedNode")),
    RejectionCode.GRAPH_NOT_FOUND: ([], given("CreateExecution", graphId="unknown")),
    RejectionCode.NODE_NOT_FOUND: (started(), given("StartNode")),
    RejectionCode.NODE_IS_CONTROL: (with_node(NodeStatus.IDLE, node_type="Join"), given("MarkNodeReady")),
    RejectionCode.NODE_TERMINAL: (with_node(NodeStatus.SUCCEEDED), given("FailNode")),
    RejectionCode.NODE_STATUS: (with_node(NodeStatus.IDLE), given("StartNode")),
    RejectionCode.NODE_HELD: (with_node(NodeStatus.RUNNING), given("StartNode", workerId="w2")),
    RejectionCode.STALE_ATTEMPT: (
        [*with_node(NodeStatus.RUNNING), event("NODE_STARTED", nodeId="a", attempt=2)],
        given("SucceedNode", attempt=1),
    ),
    RejectionCode.UNKNOWN_ATTEMPT: (with_node(NodeStatus.RUNNING), given("SucceedNode", attempt=2)),
    RejectionCode.BETWEEN_ATTEMPTS: (
        [*with_node(NodeStatus.RUNNING, retries=1), event("NODE_FAIL_REPORTED", nodeId="a")],
        given("SucceedNode"),
    ),
    RejectionCode.RESUME_KEY_MISMATCH: (with_node(NodeStatus.WAITING), given("ResumeNode", resumeKey="other")),
}


@pytest.mark.spec("001 §6")
def test_every_rejection_code_occurs() -> None:
    assert set(REFUSED) == set(RejectionCode)


@pytest.mark.spec("001 §6")
@pytest.mark.parametrize("code", RejectionCode)
def test_a_refusal_says_why_and_leaves_nothing(code: RejectionCode) -> None:
    log, asked = REFUSED[code]
    state, new_id = state_of(*log), Ids()
    before = state_to_dict(state)
    with pytest.raises(CommandRejected) as caught:
        handle(state, asked, now=T0, new_id=new_id, graph_ids={"g"})
    assert (caught.value.code, caught.value.command) == (code, asked)
    assert state_to_dict(state) == before
    assert new_id() == Ids()(), "no id was used, so no event was made"


@pytest.mark.spec("001 §6")
@pytest.mark.parametrize(
    "name", ["StartExecution", "CancelExecution", "ArchiveExecution", "MarkNodeReady", "StartNode"]
)
def test_repeating_a_command_emits_nothing(name: str) -> None:
    state = situation(name)
    after = fold(answer(state, given(name)), state)
    assert answer(after, given(name)) == []


# --- The time is an argument -----------------------------------------------------------------------------------------

CREATE = command("CreateExecution", graphId="g")
TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    "now",
    [
        datetime(2026, 1, 1, 9, tzinfo=TOKYO),
        datetime(2026, 1, 1, tzinfo=UTC),
        "2026-01-01T00:00:00Z",
        "2026-01-01T09:00:00+09:00",
    ],
    ids=str,
)
def test_a_time_with_its_offset_is_kept_in_utc(now: datetime | str) -> None:
    (made,) = handle(initial_state(EXECUTION), CREATE, now=now, new_id=Ids())
    assert made.occurred_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert made.occurred_at.tzinfo is UTC


@pytest.mark.parametrize("now", [datetime(2026, 1, 1), "2026-01-01T00:00:00", "yesterday"], ids=str)  # noqa: DTZ001
def test_a_time_without_its_offset_is_refused(now: datetime | str) -> None:
    with pytest.raises(DecodeError, match="now"):
        handle(initial_state(EXECUTION), CREATE, now=now, new_id=Ids())

"""An execution that cannot continue is failed from outside; a requested cancel wins nevertheless."""

from collections.abc import Sequence

from pyoco_server.core import (
    Actor,
    ActorKind,
    Event,
    ExecutionState,
    ExecutionStatus,
    Graph,
    NodeStatus,
    add_node,
    advance,
    fail,
    fold,
    graph_from_log,
    graph_to_dict,
    initial_state,
)
from pyoco_server.core.commands import CancelExecution, Command, CreateExecution, StartExecution, StartNode
from pyoco_server.core.payloads import NodeCreated
from tests.build import T0, Ids, event, graph

_ACTOR = Actor(ActorKind.SYSTEM, "w1")
_ERROR = {"code": "FLOW_NOT_FOUND", "message": "no such flow"}
_CREATE = CreateExecution(execution_id="e", actor=_ACTOR, graph_id="g")
_START = StartExecution(execution_id="e", actor=_ACTOR)
_START_A = StartNode(execution_id="e", actor=_ACTOR, node_id="a", attempt=1, worker_id="w1")
_CANCEL = CancelExecution(execution_id="e", actor=_ACTOR, reason="enough")


def _graph() -> Graph:
    return graph("s:Start a b z:Success", "s>a a>b b>z", a={"retries": 2, "task": "first"})


def _log(*commands: Command) -> list[Event]:
    state, log, new_id = initial_state("e"), list[Event](), Ids()
    for command in commands:
        made = advance(_graph(), state, command, now=T0, new_id=new_id)
        state = fold(made, state)
        log += made
    return log


def _failed(state: ExecutionState) -> list[Event]:
    return fail(state, reason="deliveries used up", error=_ERROR, actor=_ACTOR, now=T0, new_id=Ids())


def _types(events: Sequence[Event]) -> list[str]:
    return [event.type.value for event in events]


def test_fail_records_the_reason_and_stops_live_nodes() -> None:
    state = fold(_log(_CREATE, _START, _START_A))
    events = _failed(state)
    after = fold(events, state)
    assert after.status is ExecutionStatus.FAILED
    assert after.failure == {"reason": "deliveries used up", "failedNodeId": None, "error": _ERROR}
    assert after.nodes["a"].status is NodeStatus.CANCELED
    assert _types(events) == ["NODE_INTERRUPT_REQUESTED", "NODE_CANCELED", "EXECUTION_FAILED"]
    assert events[-1].actor == _ACTOR


def test_fail_ends_a_cancel_requested_execution_canceled() -> None:
    state = fold(_log(_CREATE, _START, _START_A, _CANCEL))
    assert not state.is_terminal
    assert fold(_failed(state), state).status is ExecutionStatus.CANCELED


def test_fail_changes_nothing_in_an_ended_or_unknown_execution() -> None:
    state = fold(_log(_CREATE))
    ended = fold(_failed(state), state)
    assert ended.status is ExecutionStatus.FAILED
    assert _failed(ended) == []
    assert _failed(initial_state("e")) == []


def test_graph_is_read_from_the_log() -> None:
    assert graph_to_dict(graph_from_log(_log(_CREATE, _START))) == graph_to_dict(_graph())


def test_an_execution_without_nodes_has_a_graph_that_is_good_enough_to_cancel_it() -> None:
    created = _log(_CREATE)[:1]
    assert _types(created) == ["EXECUTION_CREATED"]
    stand_in, state = graph_from_log(created), fold(created)
    events = advance(stand_in, state, _CANCEL, now=T0, new_id=Ids())
    assert _types(events) == ["EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED"]


def test_nodes_created_by_blocks_are_not_part_of_the_graph() -> None:
    log = _log(_CREATE, _START)
    log += add_node(fold(log), ":repeat[0]/x", "Task", now=T0, new_id=Ids())
    assert set(graph_from_log(log).nodes) == set(_graph().nodes)


def test_a_meta_of_another_program_is_not_part_of_the_graph() -> None:
    log = _log(_CREATE, _START)
    log += [
        event("NODE_CREATED", nodeId=f"foreign-{number}", nodeType="Task", meta=meta)
        for number, meta in enumerate([{"inputs": "many"}, {"node": [1]}, {"inputs": 1, "edges": 5}])
    ]
    assert graph_to_dict(graph_from_log(log)) == graph_to_dict(_graph())


def test_fields_of_the_author_do_not_change_how_the_graph_runs() -> None:
    described = [
        payload.described
        for meta in (None, {}, {"node": {"task": "a"}}, {"node": ["a"]})
        if isinstance(payload := event("NODE_CREATED", nodeId="a", nodeType="Task", meta=meta).payload, NodeCreated)
    ]
    assert described == [{}, {}, {"task": "a"}, {}]

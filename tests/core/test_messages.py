"""The texts of refusals, and the facts beside them."""

from typing import Any

import pytest

from pyoco_server.core import (
    Command,
    CommandRejected,
    DecodeError,
    ExecutionState,
    ExecutionStatus,
    GraphError,
    NodeStatus,
    advance,
    decode_command,
    decode_event,
    graph_from_dict,
    handle,
    initial_state,
)
from tests.build import EXECUTION, T0, USER, Ids, chain, command, event, graph, state_of
from tests.core.states import cancel_requested, created, ended, started, with_node

FAILED_ONCE = [*with_node(NodeStatus.RUNNING, retries=1), event("NODE_FAIL_REPORTED", nodeId="a")]
TAKEN_OVER = [*with_node(NodeStatus.RUNNING), event("NODE_STARTED", nodeId="a", attempt=2)]
UNNAMED = [*with_node(NodeStatus.READY), event("NODE_STARTED", nodeId="a", attempt=1)]
OTHER = decode_command({"type": "StartExecution", "executionId": "other", "actor": USER})


def node(status: str, attempt: int) -> dict[str, Any]:
    return {"nodeId": "a", "nodeStatus": status, "attempt": attempt}


REFUSALS: list[tuple[ExecutionState, Command, str, dict[str, Any]]] = [
    (state_of(*started()), OTHER, "it is for execution 'other', this is 'run-1'", {"executionId": "run-1"}),
    (
        initial_state(EXECUTION),
        command("StartExecution"),
        "execution 'run-1' was never created",
        {"executionId": "run-1"},
    ),
    (
        state_of(*created()),
        command("CreateExecution", graphId="h"),
        "execution 'run-1' exists already",
        {"executionId": "run-1", "graphId": "g"},
    ),
    (
        state_of(*ended(ExecutionStatus.FAILED)),
        command("StartNode", "a"),
        "the execution has ended FAILED",
        {"status": "FAILED"},
    ),
    (
        state_of(*cancel_requested()),
        command("StartNode", "a"),
        "a cancel was requested, and cancel wins",
        {"cancelRequestedAt": "2026-01-01T00:00:00Z"},
    ),
    (
        state_of(*started()),
        command("ArchiveExecution"),
        "only an execution that has ended can be archived",
        {"status": "ACTIVE"},
    ),
    (
        state_of(*started()),
        command("StartNode", "b"),
        "node 'b': the execution has no such node",
        {"nodeId": "b"},
    ),
    (
        state_of(*with_node(NodeStatus.IDLE, node_type="Join")),
        command("MarkNodeReady", "a"),
        "node 'a': it is a Join, which only the orchestrator moves",
        node("IDLE", 0),
    ),
    (
        state_of(*with_node(NodeStatus.SUCCEEDED)),
        command("StartNode", "a"),
        "node 'a': it has ended SUCCEEDED",
        node("SUCCEEDED", 1),
    ),
    (
        state_of(*with_node(NodeStatus.IDLE)),
        command("FailNode", "a"),
        "node 'a': it is IDLE, not RUNNING or WAITING",
        node("IDLE", 0),
    ),
    (
        state_of(*with_node(NodeStatus.RUNNING)),
        command("StartNode", "a", workerId="w2"),
        "node 'a': attempt 1 is held by worker 'w1'",
        node("RUNNING", 1),
    ),
    (
        state_of(*UNNAMED),
        command("StartNode", "a", workerId="w2"),
        "node 'a': attempt 1 is held by a worker that gave no workerId",
        node("RUNNING", 1),
    ),
    (
        state_of(*TAKEN_OVER),
        command("SucceedNode", "a", attempt=1),
        "node 'a': attempt 1 was replaced by attempt 2",
        node("RUNNING", 2),
    ),
    (
        state_of(*with_node(NodeStatus.RUNNING)),
        command("SucceedNode", "a", attempt=2),
        "node 'a': attempt 2 never started, the node is at attempt 1",
        node("RUNNING", 1),
    ),
    (
        state_of(*FAILED_ONCE),
        command("SucceedNode", "a"),
        "node 'a': attempt 1 was reported failed; the next one has not started",
        node("RUNNING", 1),
    ),
    (
        state_of(*FAILED_ONCE),
        command("StartNode", "a", attempt=1),
        "node 'a': attempt 1 was reported failed; start attempt 2",
        node("RUNNING", 1),
    ),
    (
        state_of(*with_node(NodeStatus.WAITING)),
        command("ResumeNode", "a", resumeKey="no"),
        "node 'a': it does not wait for this resumeKey",
        node("WAITING", 1),
    ),
]


@pytest.mark.parametrize(("state", "given", "message", "fact"), REFUSALS, ids=[row[2] for row in REFUSALS])
@pytest.mark.spec("001 §6")
def test_a_refusal_says_what_stood_in_the_way(
    state: ExecutionState, given: Command, message: str, fact: dict[str, Any]
) -> None:
    with pytest.raises(CommandRejected) as caught:
        handle(state, given, now=T0, new_id=Ids())
    rejected = caught.value
    assert str(rejected) == f"{given.type} refused: {message}"
    assert (rejected.message, rejected.fact, rejected.command) == (message, fact, given)


@pytest.mark.spec("001 §4.1")
def test_a_wrong_graph_is_named() -> None:
    with pytest.raises(CommandRejected) as caught:
        advance(chain("a"), initial_state(EXECUTION), command("CreateExecution", graphId="h"), now=T0, new_id=Ids())
    assert (caught.value.message, caught.value.fact) == ("there is no graph 'h'", {"graphId": "h"})


def test_an_execution_of_another_graph_is_named() -> None:
    other = graph_from_dict({"graphId": "h", "nodes": START_AND_END, "edges": [{"from": "s", "to": "z"}]})
    with pytest.raises(CommandRejected) as caught:
        advance(other, state_of(*started()), command("CancelExecution"), now=T0, new_id=Ids())
    assert caught.value.message == "the execution runs on graph 'g', not 'h'"
    assert caught.value.fact == {"graphId": "g"}


START_AND_END = [{"nodeId": "s", "nodeType": "Start"}, {"nodeId": "z", "nodeType": "Success"}]
NO_WAY_BACK = "a graph cannot go back; remove one of these edges"
A, J = "s:Start a z:Success", "s:Start j:Join z:Success"
COMPLAINTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("s:Start a a z:Success", "s>a a>z", {}, "node 'a' is listed 2 times: ids must be unique"),
    (A, "s>a s>a a>z", {}, "edge s -> a is listed 2 times"),
    (A, "s>a a>z a>ghost", {}, "edge a -> ghost: there is no node 'ghost'"),
    ("a z:Success", "a>z", {}, "no node of type Start: add one"),
    ("s:Start t:Start z:Success", "s>z t>z", {}, "node 't' is a second Start: use one Start and a Fork after it"),
    (
        A,
        "s>a a>s a>z",
        {},
        f"node 's' is a Start: nothing can lead to it; cycle a -> s -> a: {NO_WAY_BACK}",
    ),
    ("s:Start y:Success z:Success", "s>y y>z", {}, "node 'y' is a Success end: nothing can follow it"),
    (A, "s>a a>a a>z", {}, "cycle a -> a: a graph cannot go back; remove one of these edges"),
    (A, "s>z a>z", {}, "node 'a' cannot be reached from Start: connect or remove it"),
    (A, "s>a s>z", {}, "node 'a' has no path to an end: lead it to a Success, Failed or Canceled node"),
    (A, "s>a s>z a>z:failure", {}, "node 'a' has no edge to follow when it succeeds: add one"),
    (J, "s>z j>z", {}, "node 'j' is a Join without branches: nothing leads to it"),
    (A, "s>a a>z", {"a": {"policy": "ALL_DONE"}}, "node 'a' is a Task: only a Join has a policy"),
    (J, "s>j j>z", {"j": {"required": 1}}, "node 'j' has 'required', which only the CUSTOM policy uses"),
    (
        J,
        "s>j j>z",
        {"j": {"policy": "ANY_SUCCESS", "predicate": "majority"}},
        "node 'j' has 'predicate', which only the CUSTOM policy uses",
    ),
    (
        J,
        "s>j j>z",
        {"j": {"policy": "CUSTOM", "required": 1, "predicate": "majority"}},
        "node 'j' has the CUSTOM policy with 'required' and 'predicate': give one of them",
    ),
    (
        J,
        "s>j j>z",
        {"j": {"policy": "CUSTOM", "predicate": "most"}},
        "node 'j' names the predicate 'most', which is not known (known: majority)",
    ),
    (J, "s>j j>z", {"j": {"policy": "CUSTOM", "required": 2}}, "node 'j' requires 2 branches but has 1"),
    (A, "s>a a>z", {"s": {"retries": 1}}, "node 's' is a Start: remove 'retries'"),
    (A, "s>a a>z", {"z": {"failPolicy": "stop"}}, "node 'z' is a Success: remove 'failPolicy'"),
    (A, "s>a a>z", {"a": {"losers": "leave"}}, "node 'a' is a Task: remove 'losers'"),
    (A, "s>a a>z", {"z": {"losers": "leave"}}, "node 'z' is a Success: remove 'losers'"),
]


@pytest.mark.parametrize(("nodes", "edges", "options", "message"), COMPLAINTS, ids=[row[3] for row in COMPLAINTS])
def test_a_graph_that_cannot_run_says_why(nodes: str, edges: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph(nodes, edges, **options)
    assert str(caught.value) == message


def test_predicates_that_could_have_been_meant_are_listed() -> None:
    raw = {
        "graphId": "g",
        "nodes": [*START_AND_END, JOIN],
        "edges": [{"from": "s", "to": "j"}, {"from": "j", "to": "z"}],
    }
    with pytest.raises(GraphError, match=r"\(known: none\)"):
        graph_from_dict(raw, predicates={})
    with pytest.raises(GraphError, match=r"\(known: one, two\)"):
        graph_from_dict(raw, predicates={"two": bool, "one": bool})


THROUGH_J = [{"from": "s", "to": "j"}, {"from": "j", "to": "z"}]
JOIN = {"nodeId": "j", "nodeType": "Join", "policy": "CUSTOM", "predicate": "most"}

UNREADABLE: list[tuple[Any, str]] = [
    ("{", "not JSON: Input data was truncated (at $)"),
    ("[]", "expected a JSON object, got list (at $)"),
    (7, "expected a JSON object, got int (at $)"),
    ({}, "type is required (at $.type)"),
    ({"type": "StartNode", "executionId": "x", "actor": USER}, "nodeId is required (at $.nodeId)"),
    (
        {"type": "StartNode", "executionId": "x", "actor": {"kind": "cat"}, "nodeId": "a"},
        "invalid enum value 'cat' (at $.actor.kind)",
    ),
    (
        {"type": "StartNode", "executionId": "x", "actor": {"kind": "user", "name": "a"}, "nodeId": "a"},
        "name is not a field here (at $.actor.name)",
    ),
    (
        {"type": "StartNode", "executionId": "x", "actor": USER, "nodeId": 5},
        "expected `str`, got `int` (at $.nodeId)",
    ),
    (
        {"type": "SucceedNode", "executionId": "x", "actor": USER, "nodeId": "a", "output": {"v": {1}}},
        "{1} is not JSON (at $.output.v)",
    ),
    (
        {"type": "SucceedNode", "executionId": "x", "actor": USER, "nodeId": "a", "output": {"v": [{5: 1}]}},
        "the key 5 is not text (at $.output.v[0])",
    ),
    (
        {"type": "SucceedNode", "executionId": "x", "actor": USER, "nodeId": "a", "output": {"v": "\ud800"}},
        "text with half a surrogate pair (at $.output.v)",
    ),
]


@pytest.mark.parametrize(("raw", "message"), UNREADABLE, ids=[row[1] for row in UNREADABLE])
@pytest.mark.spec("001 §2")
def test_a_command_that_cannot_be_read_says_why(raw: Any, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_command(raw)
    assert str(caught.value) == message
    assert (caught.value.err_id, caught.value.msg_id) == ("ERR-PYOCO-0002", "MSG-PYOCO-0002")


def test_a_long_name_is_shortened() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_event(
            {
                "eventId": "e",
                "executionId": "x",
                "type": "X" * 10_000,
                "occurredAt": T0,
                "actor": USER,
                "schemaVersion": 1,
                "payload": {},
            }
        )
    assert caught.value.message == f"'{'X' * 79} is not one of the 24 event types"

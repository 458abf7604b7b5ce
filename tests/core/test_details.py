"""Details that other tests do not check: causes, correlations, reasons and single fields."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.core import (
    Actor,
    ActorKind,
    CommandType,
    DecodeError,
    Event,
    NodeStatus,
    add_node,
    cancel_node,
    confirm_stopped,
    decode_event,
    fold,
    graph_from_dict,
    graph_to_dict,
    handle,
    orchestrate,
    state_to_dict,
)
from pyoco_server.core.graph import Graph
from pyoco_server.core.transitions import NODE_GUARDS
from tests.build import T0, Ids, Run, chain, command, diamond, event, graph, payload, state_of
from tests.core.states import with_node
from tests.invariants import check_causes

ENGINE = Actor(ActorKind.SYSTEM, "engine")


def only(made: list[Event], event_type: str) -> Event:
    (found,) = [one for one in made if one.type == event_type]
    return found


def test_a_failed_execution_says_all_it_knows() -> None:
    run = Run(chain("a"))
    run.fail("a")
    written = state_to_dict(run.state)
    error = {"code": "E", "message": "broke"}
    assert written["failure"] == {"reason": "node 'a' failed", "failedNodeId": "a", "error": error}
    assert (written["input"], written["cancelReason"], written["version"]) == (None, None, len(run.log))
    assert written["failedAt"] == "2026-01-01T00:00:04Z"


def test_a_canceled_execution_says_all_it_knows() -> None:
    run = Run(chain("a"), started=False)
    run.do("CancelExecution", reason="enough")
    written = state_to_dict(run.state)
    assert (written["cancelReason"], written["failure"], written["startedAt"]) == ("enough", None, None)
    assert written["cancelRequestedAt"] == written["canceledAt"] == "2026-01-01T00:00:02Z"


def test_the_input_of_an_execution_is_kept() -> None:
    state = state_of(event("EXECUTION_CREATED", graphId="g", input={"x": 1}))
    assert state_to_dict(state)["input"] == {"x": 1}


def test_nodes_and_gates_are_written_in_the_order_of_their_names() -> None:
    run = Run(diamond("b", "a"))
    run.succeed("a", "b")
    written = state_to_dict(run.state)
    assert list(written["nodes"]) == sorted(written["nodes"])
    assert list(written["joinGates"]) == ["j"]


def test_a_node_cancelled_by_itself_fails_the_execution_with_that_reason() -> None:
    run = Run(chain("a"))
    run.start("a")
    made = cancel_node(
        run.graph,
        run.state,
        "a",
        actor=ENGINE,
        now=T0,
        new_id=run.new_id,
        reason="too slow",
        correlation_id="c1",
    )
    assert {found.correlation_id for found in made} == {"c1"}
    check_causes(made)
    assert payload(only(made, "NODE_CANCEL_REQUESTED")) == {"nodeId": "a", "reason": "too slow"}
    assert only(made, "NODE_CANCEL_REQUESTED").actor == ENGINE
    assert payload(only(made, "NODE_INTERRUPT_REQUESTED"))["reason"] == "too slow"
    assert payload(only(made, "NODE_CANCELED")) == {"nodeId": "a", "reason": "too slow"}
    assert payload(only(made, "EXECUTION_FAILED"))["reason"] == "node 'a' was canceled"


def test_a_stop_is_recorded_with_its_attempt_and_reason() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution", reason="enough")
    made = confirm_stopped(
        run.graph,
        run.state,
        "a",
        actor=ENGINE,
        now=T0,
        new_id=run.new_id,
        attempt=1,
        reason="stopped",
        correlation_id="c2",
    )
    check_causes(made)
    assert {found.correlation_id for found in made} == {"c2"}
    assert payload(only(made, "NODE_CANCELED")) == {"nodeId": "a", "attempt": 1, "reason": "stopped"}
    assert only(made, "NODE_CANCELED").actor == ENGINE
    assert payload(only(made, "EXECUTION_CANCELED")) == {"reason": "enough"}


def test_the_first_wait_without_an_attempt_can_be_confirmed_stopped_only_if_asked() -> None:
    state = state_of(
        event("EXECUTION_CREATED", graphId="g"),
        event("NODE_CREATED", nodeId="a", nodeType="Task"),
        event("NODE_WAITING", nodeId="a"),
    )
    with pytest.raises(ValueError, match="was not asked to stop"):
        confirm_stopped(chain("a"), state, "a", actor=ENGINE, now=T0, new_id=Ids())


@pytest.mark.parametrize("cancel", [False, True])
def test_later_consequences_name_their_cause(cancel: bool) -> None:
    begun = [event("EXECUTION_CREATED", graphId="g"), event("EXECUTION_STARTED")]
    if cancel:
        begun += [event("NODE_CREATED", nodeId="a", nodeType="Task"), event("EXECUTION_CANCEL_REQUESTED", reason="no")]
    cause = begun[-1]
    made = orchestrate(chain("a"), state_of(*begun), now=T0, new_id=Ids(), cause=cause)
    assert made
    check_causes([cause, *made])


def test_the_correlation_of_the_cause_is_carried_on() -> None:
    run = Run(chain("a"), started=False)
    made = run.do("StartExecution", correlationId="c3")
    assert {found.correlation_id for found in made} == {"c3"}
    later = orchestrate(
        run.graph, state_of(event("EXECUTION_CREATED", graphId="g")), now=T0, new_id=Ids(), cause=made[0]
    )
    assert {found.correlation_id for found in later} == {"c3"}


def test_a_failed_end_names_the_reason_and_the_node() -> None:
    run = Run(graph("s:Start a e:Failed", "s>a a>e"))
    made = run.succeed("a")
    check_causes(made)
    error = {"code": "FAILED_END", "message": "the execution reached 'e'"}
    assert payload(only(made, "NODE_FAILED")) == {"nodeId": "e", "attempt": 1, "error": error}
    assert payload(only(made, "EXECUTION_FAILED"))["failedNodeId"] == "e"


def test_a_canceled_end_asks_for_the_cancel() -> None:
    run = Run(graph("s:Start a c:Canceled", "s>a a>c"))
    made = run.succeed("a")
    check_causes(made)
    assert payload(only(made, "EXECUTION_CANCEL_REQUESTED")) == {"reason": "the execution reached 'c'"}
    assert run.state.cancel_reason == "the execution reached 'c'"


def test_nodes_stopped_by_a_failure_name_it() -> None:
    run = Run(diamond("a", "b"))
    run.start("b")
    made = run.fail("a")
    assert payload(only(made, "NODE_CANCELED"))["reason"] == "the execution failed at 'a'"
    assert [payload(gate)["isPassable"] for gate in made if gate.type == "JOIN_GATE_UPDATED"] == [False]


def test_gates_a_failure_passes_on_its_way_are_not_passable() -> None:
    run = Run(graph("s:Start f:Fork a b c j:Join z:Success", "s>f f>a a>b b>j f>c c>j j>z"))
    gate = payload(only(run.fail("a"), "JOIN_GATE_UPDATED"))
    assert (gate["isPassable"], gate["completedBranches"], gate["policy"]) == (False, [], "ALL_SUCCESS")


def test_canceled_losers_have_a_reason() -> None:
    run = Run(diamond("a", "b", join={"policy": "ANY_SUCCESS"}))
    made = run.succeed("a")
    check_causes(made)
    asked, ended = only(made, "NODE_CANCEL_REQUESTED"), only(made, "NODE_CANCELED")
    assert payload(asked) == {"nodeId": "b", "reason": "'j' was passed without it"}
    assert payload(ended)["skip"] == {"by": "j", "countsAs": "dropped"}


def test_a_skipped_node_names_the_node_that_failed() -> None:
    run = Run(graph("s:Start a b z:Success", "s>a a>b b>z", a={"failPolicy": "isolate"}))
    skipped = payload(only(run.fail("a"), "NODE_CANCELED"))
    assert skipped["reason"] == "cannot run: 'a' ended FAILED"
    assert skipped["skip"] == {"by": "a", "countsAs": "isolated"}


WRONG_GRAPHS: list[tuple[dict[str, Any], str]] = [
    ({"graphId": ""}, "$.graphId"),
    ({"graphId": 5}, "$.graphId"),
    ({"nodes": 5}, "$.nodes"),
    ({"nodes": [5]}, "$.nodes[0]"),
    ({"nodes": [{"nodeId": "a"}]}, "$.nodes[0].nodeType"),
    ({"edges": 5}, "$.edges"),
    ({"edges": [{"from": "s"}]}, "$.edges[0].to"),
    ({"edges": [{"from": "s", "to": "z", "label": "x"}]}, "$.edges[0].label"),
]


@pytest.mark.parametrize(("wrong", "path"), WRONG_GRAPHS, ids=[row[1] for row in WRONG_GRAPHS])
def test_a_wrong_field_of_a_graph_is_located(wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        graph_from_dict({"graphId": "g", "nodes": [], "edges": [], **wrong})
    assert caught.value.path == path


@pytest.mark.parametrize("field", ["graphId", "nodes", "edges"])
def test_a_missing_field_of_a_graph_is_named(field: str) -> None:
    whole = {"graphId": "g", "nodes": [], "edges": []}
    del whole[field]
    with pytest.raises(DecodeError, match=f"{field} is required"):
        graph_from_dict(whole)


def test_a_payload_that_is_no_object_is_refused_as_such() -> None:
    raw = {
        "eventId": "e",
        "executionId": "x",
        "type": "NODE_READY",
        "occurredAt": "2026-01-01T00:00:00Z",
        "actor": {"kind": "user"},
        "schemaVersion": 1,
        "payload": 5,
    }
    with pytest.raises(DecodeError) as caught:
        decode_event(raw)
    assert str(caught.value) == "expected `object`, got `int` (at $.payload)"


def test_graphs_that_differ_are_not_the_same_key() -> None:
    one, other = chain("a"), chain("b")
    assert len({one, other, chain("a")}) == 2
    assert one != graph_to_dict(one)


def test_a_graph_can_be_built_without_json() -> None:
    made = Graph("g", chain("a").nodes.values(), chain("a").edges)
    assert made == chain("a")
    assert made.extra == {}


def test_folding_many_events_is_folding_them_one_by_one() -> None:
    run = Run(diamond(*[f"b{number}" for number in range(30)]))
    run.start("b1", "b2")
    run.succeed("b3")
    run.do("CancelExecution")
    state = state_of()
    for found in run.log:
        state = fold([found], state)
    assert fold(run.log) == state == run.state
    assert fold(iter(run.log)) == state
    canceled = fold([*run.log, event("EXECUTION_CANCELED"), event("NODE_CREATED", nodeId="late", nodeType="Task")])
    assert all(node.is_terminal for node in canceled.nodes.values())


# --- Nodes added on the way ------------------------------------------------------------------------------------------


def test_a_node_can_be_added_while_the_execution_runs() -> None:
    run = Run(chain("a"))
    made = add_node(
        run.state, "extra", "Task", now=T0, new_id=run.new_id, retries=1, described={"task": "x"}, correlation_id="c4"
    )
    check_causes(made)
    created, ready = made
    assert payload(created) == {
        "nodeId": "extra",
        "nodeType": "Task",
        "meta": {"node": {"task": "x"}, "inputs": 0, "retries": 1},
    }
    assert (ready.type, ready.correlation_id) == ("NODE_READY", "c4")
    run.commit(made)
    assert run.state.nodes["extra"].retries == 1
    assert orchestrate(run.graph, run.state, now=T0, new_id=run.new_id) == []


def test_an_added_node_keeps_the_execution_from_completing() -> None:
    run = Run(chain("a"))
    run.commit(add_node(run.state, "extra", "Task", now=T0, new_id=run.new_id))
    run.succeed("a")
    assert not run.state.is_terminal
    run.succeed("extra")
    assert run.state.status == "COMPLETED"


def test_no_node_is_added_twice_or_to_an_ending_execution() -> None:
    run = Run(chain("a"))
    assert add_node(run.state, "a", "Task", now=T0, new_id=run.new_id) == []
    run.start("a")
    run.do("CancelExecution")
    assert add_node(run.state, "extra", "Task", now=T0, new_id=run.new_id) == []
    ended = Run(chain("a"))
    ended.fail("a")
    assert add_node(ended.state, "extra", "Task", now=T0, new_id=run.new_id) == []


NODE_COMMANDS = [
    ("MarkNodeReady", NodeStatus.IDLE),
    ("StartNode", NodeStatus.READY),
    ("ReportNodeProgress", NodeStatus.RUNNING),
    ("PutNodeWaiting", NodeStatus.RUNNING),
    ("RequestResumeNode", NodeStatus.WAITING),
    ("ResumeNode", NodeStatus.WAITING),
    ("SucceedNode", NodeStatus.RUNNING),
    ("FailNode", NodeStatus.RUNNING),
]


@pytest.mark.parametrize(("name", "status"), NODE_COMMANDS, ids=[row[0] for row in NODE_COMMANDS])
def test_a_command_is_recorded_by_the_event_its_guard_names(name: str, status: NodeStatus) -> None:
    made = handle(state_of(*with_node(status)), command(name, "a"), now=T0, new_id=Ids())
    assert made[-1].type is NODE_GUARDS[CommandType(name)].emits


def test_the_example_that_walks_a_graph_completes(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "walk_a_graph.py"), run_name="__main__")
    assert "final state: COMPLETED at version 40" in capsys.readouterr().out

"""Bugs that were found, each as a test."""

import pickle
from typing import Any

import pytest

from pyoco_server.core import (
    Actor,
    ActorKind,
    CommandRejected,
    DecodeError,
    DecodeProblem,
    ExecutionStatus,
    GraphError,
    GraphProblem,
    NodeNotStoppableError,
    NodeStatus,
    RejectionCode,
    WrongGraphError,
    advance,
    cancel_node,
    confirm_stopped,
    decode_command,
    decode_event,
    effects,
    fold,
    graph_from_dict,
    graph_to_dict,
    handle,
    initial_state,
    orchestrate,
    order_batch,
    reduce,
)
from pyoco_server.core.graph_validation import GraphFinding
from tests.build import T0, Run, chain, command, diamond, event, graph, payload, state_of, types

RETRIED = graph("s:Start a z:Success", "s>a a>z", a={"retries": 1})


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids=str)
@pytest.mark.parametrize("kind", ["Task", "Join"])
def test_the_order_of_an_isolated_and_an_ordinary_failure_does_not_matter(order: tuple[str, str], kind: str) -> None:
    on = graph(f"s:Start f:Fork a b t:{kind} z:Success", "s>f f>a f>b a>t b>t t>z", a={"failPolicy": "isolate"})
    run = Run(on)
    run.start("a", "b")
    for node_id in order:
        if not run.state.is_terminal:
            run.do("FailNode", node_id)
    assert run.state.status is ExecutionStatus.FAILED


def test_an_isolated_failure_on_one_path_does_not_hide_a_fatal_one_on_another() -> None:
    on = graph(
        "s:Start f:Fork a b c k:Join j:Join z:Success",
        "s>f f>a f>b f>c a>k b>k k>j c>j j>z",
        c={"failPolicy": "isolate"},
    )
    run = Run(on)
    run.start("a", "b", "c")
    run.do("FailNode", "c")
    assert not run.state.is_terminal
    run.do("FailNode", "a")
    assert run.state.status is ExecutionStatus.FAILED


@pytest.mark.parametrize("extra", [{"isolated": "no"}, {"extra": "x"}, {"isolated": True}, {"edges": 7}], ids=str)
def test_a_field_of_the_authors_own_does_not_change_how_the_graph_runs(extra: dict[str, Any]) -> None:
    on = graph("s:Start f:Fork a b j:Join after z:Success", "s>f f>a f>b a>j b>j j>after after>z", a=extra)
    succeeding, failing = Run(on), Run(on)
    succeeding.succeed("a")
    failing.fail("a")
    assert succeeding.status("j") is NodeStatus.IDLE
    assert failing.state.status is ExecutionStatus.FAILED


def test_the_last_gate_before_a_join_passes_says_that_it_does() -> None:
    run = Run(graph("s:Start a h j:Join z:Success", "s>a a>j a>h:failure h>j j>z"))
    run.succeed("a")
    before = run.log[: types(run.log).index("JOIN_PASSED")]  # type: ignore[arg-type]  # an EventType is a str
    gates = [payload(found) for found in before if found.type == "JOIN_GATE_UPDATED"]
    assert gates[-1]["isPassable"] is True


def test_a_failed_attempt_survives_the_order_of_a_batch() -> None:
    started = event("NODE_STARTED", nodeId="a", attempt=1)
    failed = event("NODE_FAIL_REPORTED", nodeId="a", attempt=1)
    assert not fold(order_batch([started, failed]), Run(RETRIED).state).nodes["a"].is_at_work


def test_an_attempt_reported_failed_twice_has_failed_once() -> None:
    run = Run(RETRIED)
    run.start("a")
    run.commit([event("NODE_FAIL_REPORTED", nodeId="a", attempt=1) for _ in range(2)])
    assert run.state.nodes["a"].failures == 1


def test_a_loser_with_a_way_on_after_failure_is_cancelled_like_any_other() -> None:
    on = graph(
        "s:Start f:Fork a b j:Join z:Success e:Failed",
        "s>f f>a f>b a>j b>j a>e b>e j>z",
        j={"policy": "ANY_SUCCESS"},
    )
    run = Run(on)
    run.start("b")
    made = run.succeed("a")
    assert run.status("b") is NodeStatus.CANCELED
    assert run.state.status is ExecutionStatus.COMPLETED
    assert [payload(found)["canceledBranches"] for found in made if found.type == "JOIN_GATE_UPDATED"] == [[], ["b"]]


def test_what_only_a_loser_could_have_led_to_is_not_waited_for() -> None:
    on = graph(
        "s:Start f:Fork a b h j:Join k:Join z:Success",
        "s>f f>a f>b a>j b>j b>h:failure j>k h>k k>z",
        j={"policy": "ANY_SUCCESS"},
    )
    run = Run(on)
    run.succeed("a")
    assert run.status("h") is NodeStatus.CANCELED
    assert run.state.status is ExecutionStatus.COMPLETED


def test_a_loser_that_leads_to_its_join_in_two_ways_is_cancelled() -> None:
    on = graph(
        "s:Start f:Fork a b h j:Join z:Success",
        "s>f f>a f>b a>j b>h b>j:failure h>j j>z",
        j={"policy": "ANY_SUCCESS"},
    )
    run = Run(on)
    run.start("b")
    run.succeed("a")
    assert (run.status("b"), run.status("h")) == (NodeStatus.CANCELED, NodeStatus.CANCELED)
    assert run.state.status is ExecutionStatus.COMPLETED


def test_a_branch_that_ends_before_its_join_is_created_still_counts() -> None:
    state = state_of(
        event("EXECUTION_CREATED", graphId="g"),
        event("NODE_CREATED", nodeId="a", nodeType="Task", meta={"inputs": 1, "edges": [{"to": "j", "meets": True}]}),
        event("NODE_SUCCEEDED", nodeId="a"),
        event("NODE_CREATED", nodeId="j", nodeType="Join", meta={"inputs": 2}),
    )
    assert (state.tallies["j"].taken, state.tallies["j"].pending) == (1, 1)


@pytest.mark.parametrize("event_type", ["NODE_RESUME_REQUESTED", "NODE_CANCEL_REQUESTED"])
def test_a_request_about_a_node_that_does_not_exist_is_refused(event_type: str) -> None:
    state = state_of(event("EXECUTION_CREATED", graphId="g"))
    assert reduce(state, event(event_type, nodeId="ghost")) is state


def test_an_interrupt_of_a_replaced_attempt_is_not_one_of_its_successor() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.commit([event("NODE_INTERRUPT_REQUESTED", nodeId="a")])
    run.do("StartNode", "a", attempt=2)
    with pytest.raises(NodeNotStoppableError, match="was not asked to stop"):
        confirm_stopped(run.graph, run.state, "a", actor=Actor(ActorKind.SYSTEM), now=T0, new_id=run.new_id)


def test_refused_events_have_no_effects() -> None:
    state = Run(chain("a")).state
    assert effects([event("NODE_READY", nodeId="ghost"), event("EXECUTION_COMPLETED")], state) == []


def test_a_predicate_that_rejects_branches_that_all_succeeded_fails_the_execution() -> None:
    on = graph("s:Start f:Fork a j:Join z:Success", "s>f f>a a>j j>z", j={"policy": "CUSTOM", "predicate": "majority"})
    assert on.rule("j").predicate is not None
    never = type(on)(on.graph_id, on.nodes.values(), on.edges, predicates={"majority": lambda _: False})
    run = Run(never)
    run.succeed("a")
    assert run.state.status is ExecutionStatus.FAILED
    assert payload(run.log[-1])["reason"] == "node 'j' can never pass"


@pytest.mark.parametrize("order", [("iso", "f", "x"), ("f", "iso", "x"), ("x", "f", "iso"), ("iso", "x", "f")], ids=str)
def test_a_branch_doomed_by_two_nodes_counts_once(order: tuple[str, ...]) -> None:
    on = graph(
        "s:Start k:Fork iso f x m j:Join z:Success",
        "s>k k>iso k>f k>x iso>m f>m m>j x>j j>z",
        iso={"failPolicy": "isolate"},
        j={"policy": "ANY_SUCCESS", "losers": "leave"},
    )
    run = Run(on)
    for node_id in order:
        if node_id == "x":
            run.succeed("x")
        else:
            run.fail(node_id)
    assert run.state.status is ExecutionStatus.COMPLETED


def test_a_failure_before_a_node_started_out_of_turn_has_all_its_consequences() -> None:
    run = Run(graph("s:Start b c x j:Join z:Success", "s>b b>c c>j s>x x>j j>z", j={"policy": "ANY_SUCCESS"}))
    run.do("MarkNodeReady", "c")
    run.fail("b")
    run.fail("x")
    assert orchestrate(run.graph, run.state, now=T0, new_id=run.new_id) == []
    run.succeed("c")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_a_branch_that_fails_before_its_last_node_shows_in_the_gate() -> None:
    run = Run(graph("s:Start f:Fork a b c j:Join z:Success", "s>f f>a a>b b>j f>c c>j j>z"))
    gates = [payload(found) for found in run.fail("a") if found.type == "JOIN_GATE_UPDATED"]
    assert [(gate["expectedBranches"], gate["failedBranches"]) for gate in gates] == [(["a", "c"], ["a"])]


def test_a_custom_join_without_more_needs_all_branches() -> None:
    run = Run(diamond("a", "b", join={"policy": "CUSTOM"}))
    run.succeed("a")
    assert run.status("j") is NodeStatus.IDLE
    run.succeed("b")
    assert run.status("j") is NodeStatus.SUCCEEDED


@pytest.mark.parametrize("call", [orchestrate, cancel_node, confirm_stopped])
def test_the_graph_of_another_execution_is_refused(call: Any) -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("CancelExecution")
    other = graph_from_dict(graph_to_dict(chain("a")) | {"graphId": "other"})
    where = () if call is orchestrate else ("a",)
    who = {} if call is orchestrate else {"actor": Actor(ActorKind.SYSTEM)}
    with pytest.raises(WrongGraphError, match="'g', not 'other'"):
        call(other, run.state, *where, now=T0, new_id=run.new_id, **who)


@pytest.mark.parametrize("raw", [None, 5, [], object()], ids=["none", "number", "list", "object"])
@pytest.mark.parametrize("decode", [decode_event, decode_command, graph_from_dict])
def test_a_value_that_is_no_object_is_refused(decode: Any, raw: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(raw)
    assert caught.value.problem is DecodeProblem.NOT_AN_OBJECT


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"x", object(), "\ud800", {5: 1}, {"a": {"b": {1, 2}}}],
    ids=["nan", "inf", "bytes", "object", "surrogate", "key", "set"],
)
def test_a_dictionary_with_a_value_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        command("SucceedNode", "a", output={"v": value})
    assert caught.value.path.startswith("$.output.v")


def test_a_dictionary_nested_too_deeply_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(2_000):
        nested = {"in": nested}
    with pytest.raises(DecodeError) as caught:
        command("SucceedNode", "a", output=nested)
    assert caught.value.problem is DecodeProblem.TOO_DEEP


def test_a_decoded_value_does_not_change_with_its_source() -> None:
    output = {"v": {"w": 1}, "t": (1, 2), "at": T0, "text": "é"}
    given = command("SucceedNode", "a", output=output)
    output["v"]["w"] = 2  # type: ignore[index]
    assert given.output == {"v": {"w": 1}, "t": [1, 2], "at": "2026-01-01T00:00:00Z", "text": "é"}


@pytest.mark.parametrize(
    "error",
    [
        DecodeError(DecodeProblem.MISSING_FIELD, "x is required", path="$.x"),
        CommandRejected(RejectionCode.NODE_NOT_FOUND, command("StartNode", "a"), "no", {"nodeId": "a"}),
        GraphError([GraphFinding(GraphProblem.NO_START, None, "no start")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: Exception) -> None:
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 our own bytes
    assert (str(copied), vars(copied)) == (str(error), vars(error))


def test_an_empty_id_is_refused() -> None:
    run = Run(chain("a"))
    with pytest.raises(ValueError, match="empty id"):
        advance(run.graph, run.state, command("StartNode", "a"), now=T0, new_id=lambda: "")


@pytest.mark.parametrize("now", [None, 0, lambda: T0], ids=["none", "number", "function"])
def test_a_value_that_is_no_time_is_refused(now: Any) -> None:
    with pytest.raises(DecodeError, match="expected a time"):
        handle(initial_state("run-1"), command("CreateExecution", graphId="g"), now=now, new_id=lambda: "1")


def test_a_requested_cancel_comes_first_whatever_caused_it() -> None:
    done = event("NODE_SUCCEEDED", nodeId="a")
    asked = event("EXECUTION_CANCEL_REQUESTED", causation_id=done.event_id)
    assert order_batch([done, asked]) == [asked, done]


def test_a_new_attempt_begins_without_the_progress_of_the_last() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("ReportNodeProgress", "a", progress=90, message="soon")
    run.do("StartNode", "a", attempt=2)
    assert (run.state.nodes["a"].progress, run.state.nodes["a"].progress_message) == (None, None)


def test_a_node_doomed_on_two_paths_is_skipped_once() -> None:
    on = graph(
        "s:Start f:Fork a b c t x j:Join z:Success",
        "s>f f>a f>x a>b a>c b>t c>t t>j x>j j>z",
        j={"policy": "ANY_SUCCESS"},
    )
    run = Run(on)
    made = run.fail("a")
    assert [payload(found)["nodeId"] for found in made if found.type == "NODE_CANCELED"] == ["b", "c", "t"]
    run.succeed("x")
    assert run.state.status is ExecutionStatus.COMPLETED


def test_what_came_with_a_resume_is_known_until_the_node_waits_again() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("PutNodeWaiting", "a", waitKey="k")
    run.do("ResumeNode", "a", input={"ok": True})
    assert run.state.nodes["a"].resumption == {"input": {"ok": True}}
    run.do("PutNodeWaiting", "a")
    assert run.state.nodes["a"].resumption is None


def test_nodes_without_a_place_do_not_count_as_placed() -> None:
    own = event("NODE_CREATED", nodeId="own", nodeType="Task", meta={"inputs": 0})
    assert fold([own], Run(chain("a")).state).placed == len(chain("a").nodes)

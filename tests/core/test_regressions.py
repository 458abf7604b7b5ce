"""Things that once went wrong."""

from typing import Any

import pytest

from pyoco_server.core import (
    Actor,
    ActorKind,
    ExecutionStatus,
    NodeNotStoppableError,
    NodeStatus,
    confirm_stopped,
    effects,
    fold,
    order_batch,
    reduce,
)
from tests.build import T0, Run, chain, event, graph, payload, state_of, types

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


def test_a_harmless_death_on_one_way_does_not_hide_a_fatal_one_on_another() -> None:
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
        event("NODE_CREATED", nodeId="a", nodeType="Task", meta={"edges": [{"to": "j"}]}),
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

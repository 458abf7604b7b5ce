"""The cached start of a graph gives every execution the same events as the orchestrator would."""

import gc
import weakref
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyoco_server.core import (
    Commit,
    ExecutionState,
    Graph,
    commit,
    decode_command,
    fold,
    graph_from_dict,
    graph_to_dict,
    handle,
    initial_state,
    orchestrate,
)
from pyoco_server.core.start_cache import cached_start
from tests.build import T0, USER, Ids, chain, diamond, graph, types
from tests.properties.graphs import runnable_graphs


def created(execution_id: str, on: Graph, **more: Any) -> ExecutionState:
    """As a gateway leaves it: created, and not a node of it."""
    create = {"type": "CreateExecution", "executionId": execution_id, "actor": USER, "graphId": on.graph_id, **more}
    state = initial_state(execution_id)
    return fold(handle(state, decode_command(create), now=T0, new_id=Ids()), state)


def started(on: Graph, state: ExecutionState, at: datetime, **more: Any) -> Commit:
    start = {"type": "StartExecution", "executionId": state.execution_id, "actor": USER, **more}
    return commit(on, state, decode_command(start), now=at, new_id=Ids())


def without_cache(on: Graph) -> Graph:
    """The same graph with nothing remembered."""
    return graph_from_dict(graph_to_dict(on))


@settings(max_examples=300, deadline=None)
@given(runnable_graphs, st.sampled_from([None, "corr-1"]))
def test_the_cached_start_equals_what_the_orchestrator_makes(drawn: Graph, correlation: str | None) -> None:
    known = without_cache(drawn)
    more = {"correlationId": correlation, "startedBy": {"kind": "user", "id": "bob"}, "why": "because"}
    started(known, created("first", known, input={"params": {"a": 1}}), T0)
    state = created("second", known, input={"params": {"b": [2]}})
    later = T0 + timedelta(minutes=1)
    cached, orchestrated = started(known, state, later, **more), started(without_cache(drawn), state, later, **more)
    assert cached == orchestrated
    assert fold(cached.events, state) == cached.state


@pytest.mark.parametrize("on", [chain("a", "b"), diamond("a", "b"), graph("s:Start a b z:Success", "s>a s>b a>z b>z")])
def test_the_start_is_cached_after_the_first_execution(on: Graph) -> None:
    assert cached_start(on) is None
    started(on, created("first", on), T0)
    assert cached_start(on) is not None


@pytest.mark.parametrize("end", ["Success", "Failed", "Canceled"])
def test_the_start_of_a_graph_without_work_is_not_cached(end: str) -> None:
    on = graph(f"s:Start z:{end}", "s>z")
    first, second = (started(on, created(name, on), T0) for name in ("first", "second"))
    assert cached_start(on) is None
    assert types(first.events) == types(second.events)
    assert first.state.is_terminal
    assert second.state.is_terminal


def test_changing_a_returned_payload_does_not_change_the_cache() -> None:
    on = chain("a")
    started(on, created("first", on), T0)
    spoilt = started(on, created("second", on), T0)
    for event in spoilt.events:
        payload: Any = event.payload
        payload.extra["spoilt"] = True
        for part in (getattr(payload, "meta", None) or {}).values():
            if isinstance(part, dict):
                part["spoilt"] = True
    state = created("third", on)
    assert started(on, state, T0) == started(without_cache(on), state, T0)


def test_the_cached_start_is_not_used_for_a_log_of_another_program() -> None:
    """Its nodes exist already, or a cancel was requested."""
    on = chain("a")
    started(on, created("first", on), T0)
    whole = commit(
        on,
        initial_state("second"),
        decode_command({"type": "CreateExecution", "executionId": "second", "actor": USER, "graphId": on.graph_id}),
        now=T0,
        new_id=Ids(),
    )
    assert whole.state.nodes
    assert started(on, whole.state, T0) == started(without_cache(on), whole.state, T0)


def test_the_cache_keeps_nothing_of_the_first_execution() -> None:
    on = chain("a")
    started(on, created("first", on, input={"params": {"password": "hunter2"}}), T0)
    kept: Any = cached_start(on)
    assert (kept._after.execution_id, kept._after.input, kept._after.created_at) == ("", None, None)
    gc.disable()
    try:
        gone = weakref.ref(kept)
        del kept
        on.remembered.clear()
        assert gone() is None
        assert not [one for one in gc.get_referents(on) if one is on]
    finally:
        gc.enable()


def test_a_start_with_repeated_event_ids_is_not_cached() -> None:
    on = chain("a")
    start = decode_command({"type": "StartExecution", "executionId": "first", "actor": USER})
    for _ in range(2):
        made = commit(on, created("first", on), start, now=T0, new_id=lambda: "same")
        assert types(made.events)[0] == "EXECUTION_STARTED"
    assert cached_start(on) is None


@settings(max_examples=200, deadline=None)
@given(runnable_graphs)
def test_starting_an_attempt_has_no_consequences(drawn: Graph) -> None:
    """It is committed without looking: who looks at everything afterwards finds nothing to do."""
    state = started(drawn, created("first", drawn), T0).state
    for node in state.live_nodes():
        begin = {"type": "StartNode", "executionId": "first", "actor": USER, "nodeId": node.node_id, "attempt": 1}
        made = commit(drawn, state, decode_command(begin), now=T0, new_id=Ids())
        assert types(made.events) == ["NODE_STARTED"]
        assert made.state == fold(made.events, state)
        assert orchestrate(drawn, made.state, now=T0, new_id=Ids()) == []
        state = made.state

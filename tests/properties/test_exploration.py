"""Explores small graphs completely; the expected ends are stated for each graph, independently of the orchestrator.

At the end of the file: in random graphs without races, the order in which nodes end does not matter.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyoco_server.core import ExecutionState, ExecutionStatus, Graph, NodeStatus
from tests.build import Run, chain, diamond, graph
from tests.properties.exploration import explore
from tests.properties.graphs import raceless_graphs

Rule = Callable[[set[str]], bool]
"""Given the work that succeeded: does an execution that was not cancelled complete?"""


def all_of(*node_ids: str) -> Rule:
    return lambda succeeded: succeeded >= set(node_ids)


def some_of(count: int, *node_ids: str, then: str | None = None) -> Rule:
    return lambda succeeded: len(succeeded & set(node_ids)) >= count and (then is None or then in succeeded)


RETRY = {"retries": 1}
NESTED = (
    "s:Start f:Fork a g:Fork b c k:Join j:Join d z:Success",
    "s>f f>a f>g g>b g>c b>k c>k k>j a>j j>d d>z",
)
FOUR = ("s:Start f:Fork a b c d j:Join z:Success", "s>f f>a f>b f>c f>d a>j b>j c>j d>j j>z")
ANY, DONE = {"policy": "ANY_SUCCESS"}, {"policy": "ALL_DONE"}

GRAPHS: dict[str, tuple[Graph, Rule]] = {
    "one task": (chain("a"), all_of("a")),
    "chain of four": (chain("a", "b", "c", "d"), all_of("a", "b", "c", "d")),
    "a task with a retry, then another": (graph("s:Start a b z:Success", "s>a a>b b>z", a=RETRY), all_of("a", "b")),
    "a wait in a chain": (graph("s:Start a w:Wait b z:Success", "s>a a>w w>b b>z"), all_of("a", "w", "b")),
    "two waits side by side": (
        graph("s:Start f:Fork v:Wait w:Wait j:Join a z:Success", "s>f f>v f>w v>j w>j j>a a>z"),
        all_of("v", "w", "a"),
    ),
    "ALL_SUCCESS": (diamond("a", "b", "c"), all_of("a", "b", "c", "after")),
    "ANY_SUCCESS, losers cancelled": (diamond("a", "b", "c", join=ANY), some_of(1, "a", "b", "c", then="after")),
    "ANY_SUCCESS, losers left": (
        diamond("a", "b", "c", join={**ANY, "losers": "leave"}),
        some_of(1, "a", "b", "c", then="after"),
    ),
    "ALL_DONE": (diamond("a", "b", "c", join=DONE), all_of("after")),
    "two of three": (
        diamond("a", "b", "c", join={"policy": "CUSTOM", "required": 2}),
        some_of(2, "a", "b", "c", then="after"),
    ),
    "a majority": (
        diamond("a", "b", "c", join={"policy": "CUSTOM", "predicate": "majority", "losers": "leave"}),
        some_of(2, "a", "b", "c", then="after"),
    ),
    "nested forks, ALL_SUCCESS": (graph(*NESTED), all_of("a", "b", "c", "d")),
    "nested forks, inner ANY": (
        graph(*NESTED, k=ANY),
        lambda succeeded: {"a", "d"} <= succeeded and bool({"b", "c"} & succeeded),
    ),
    "nested forks, outer ANY": (
        graph(*NESTED, j=ANY),
        lambda succeeded: "d" in succeeded and ("a" in succeeded or {"b", "c"} <= succeeded),
    ),
    "nested forks, ALL_DONE over ANY": (graph(*NESTED, j=DONE, k=ANY), all_of("d")),
    "branches of several nodes": (
        graph("s:Start f:Fork a b c d j:Join z:Success", "s>f f>a a>b f>c c>d b>j d>j j>z", j=ANY),
        lambda succeeded: {"a", "b"} <= succeeded or {"c", "d"} <= succeeded,
    ),
    "a wait against a task": (
        graph("s:Start f:Fork w:Wait b j:Join c z:Success", "s>f f>w f>b w>j b>j j>c c>z", j=ANY),
        some_of(1, "w", "b", then="c"),
    ),
    "a failure handled": (
        graph("s:Start a h b j:Join z:Success", "s>a a>h:failure a>b h>j b>j j>z"),
        lambda succeeded: {"a", "b"} <= succeeded or ("a" not in succeeded and "h" in succeeded),
    ),
    "an isolated failure beside other work": (
        graph(
            "s:Start f:Fork a b c j:Join z:Success", "s>f f>a a>b f>c b>j c>j j>z", a={"failPolicy": "isolate"}, j=DONE
        ),
        lambda _: True,
    ),
    "an isolated failure at the end of a chain": (
        graph("s:Start a b z:Success", "s>a a>b b>z", b={"failPolicy": "isolate"}),
        all_of("a"),
    ),
    "a failure that stops, before a tolerant join": (
        graph(
            "s:Start f:Fork a b c j:Join z:Success", "s>f f>a f>b f>c a>j b>j c>j j>z", a={"failPolicy": "stop"}, j=ANY
        ),
        some_of(1, "a", "b", "c"),
    ),
    "four branches, two of four": (
        graph(*FOUR, j={"policy": "CUSTOM", "required": 2}),
        some_of(2, "a", "b", "c", "d"),
    ),
    "four branches, ALL_DONE, one with a retry": (graph(*FOUR, a=RETRY, j=DONE), lambda _: True),
    "ends by outcome": (
        graph("s:Start a b ok:Success ko:Failed off:Canceled", "s>a a>b a>ko b>ok b>off"),
        all_of("a", "b"),
    ),
    "no fork, no join: a task with two inputs": (
        graph("s:Start a b c z:Success", "s>a s>b a>c b>c c>z"),
        all_of("a", "b", "c"),
    ),
    "two ends": (graph("s:Start f:Fork a b y:Success z:Success", "s>f f>a f>b a>y b>z"), all_of("a", "b")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_interleaving_keeps_the_rules_and_can_end(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    on, completes = GRAPHS[name]
    explored = explore(on)
    finisher = explored.finisher()
    with capsys.disabled():
        ends = ", ".join(f"{status} {count}" for status, count in sorted(finisher.items()))
        print(f"\n  {name}: {explored.states:,} states, {explored.steps:,} steps; ends: {ends}", end="")  # noqa: T201
    assert finisher["CANCELED"] > 0
    assert finisher["COMPLETED"] > 0
    for state in explored.ends:
        if state.status != "CANCELED":
            assert completes(_succeeded(state)) == (state.status == "COMPLETED"), _succeeded(state)


def _succeeded(state: ExecutionState) -> set[str]:
    return {node.node_id for node in state.nodes.values() if node.status == "SUCCEEDED"}


# --- Random graphs without races --------------------------------------------------------------------------------------


def play(graph: Graph, failing: set[str], order: random.Random) -> ExecutionState:
    """Run to the end in a random order; the nodes in ``failing`` fail for good, the others succeed."""
    run = Run(graph)
    while not run.state.is_terminal:
        node = order.choice(sorted(run.state.live_nodes(), key=lambda live: live.node_id))
        if node.status is NodeStatus.READY:
            run.do("StartNode", node.node_id)
        elif node.node_id in failing:
            run.do("FailNode", node.node_id, retryable=False)
        else:
            run.do("SucceedNode", node.node_id)
    return run.state


@settings(max_examples=300, deadline=None)
@given(graph=raceless_graphs, data=st.data(), seeds=st.tuples(st.integers(0, 999), st.integers(0, 999)))
def test_the_order_of_ends_does_not_matter(graph: Graph, data: st.DataObject, seeds: tuple[int, int]) -> None:

    failing = data.draw(st.sets(st.sampled_from(sorted(graph.nodes))))
    one, other = (play(graph, failing, random.Random(seed)) for seed in seeds)
    assert one.status is other.status
    if one.status is ExecutionStatus.COMPLETED:
        assert {n.node_id: n.status for n in one.nodes.values()} == {n.node_id: n.status for n in other.nodes.values()}

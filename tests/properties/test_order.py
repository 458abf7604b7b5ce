"""Where nothing races by design, the order in which work ends does not change how the execution ends."""

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pyoco_server.core import ExecutionState, ExecutionStatus, Graph, NodeStatus
from tests.build import Run
from tests.properties.graphs import runnable_graphs

RACELESS = {None, "ALL_SUCCESS", "ALL_DONE"}
"""Policies that wait for every branch, or fail at the first failure; the others are races and mean to be."""


def has_no_races(graph: Graph) -> bool:
    return all(
        node.policy in RACELESS and node.fail_policy != "stop" and node.node_type not in {"Failed", "Canceled"}
        for node in graph.nodes.values()
    )


def play(graph: Graph, failing: set[str], order: random.Random) -> ExecutionState:
    """Run to the end; the nodes in ``failing`` fail for good, the others succeed, in an order of chance."""
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


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=runnable_graphs, data=st.data(), seeds=st.tuples(st.integers(0, 999), st.integers(0, 999)))
def test_the_order_of_ends_does_not_matter(graph: Graph, data: st.DataObject, seeds: tuple[int, int]) -> None:
    assume(has_no_races(graph))
    failing = data.draw(st.sets(st.sampled_from(sorted(graph.nodes))))
    one, other = (play(graph, failing, random.Random(seed)) for seed in seeds)
    assert one.status is other.status
    if one.status is ExecutionStatus.COMPLETED:
        assert {n.node_id: n.status for n in one.nodes.values()} == {n.node_id: n.status for n in other.nodes.values()}

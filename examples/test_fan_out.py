"""A loop makes a node for each round; ``nodes_of`` finds them by the name of the task."""

# ruff: noqa: S101 (assert is how tests speak)
from examples.fan_out import flow

from pyoco_server.testing import FlowTester, assert_completed, assert_order, assert_succeeded, nodes_of


def test_every_page_is_counted(flow_tester: FlowTester) -> None:
    """As many rounds as the list has items, and the total after all of them."""
    result = flow_tester.run(flow, {"count": 5})
    assert_completed(result)
    rounds = nodes_of(result, "count_words")
    assert len(rounds) == 5
    assert_succeeded(result, *rounds)
    for node in rounds:
        assert_order(result, "list_pages", node, "total")
    assert result.results["total"] == 1_500


def test_an_empty_list_is_no_problem(flow_tester: FlowTester) -> None:
    """No rounds, and the flow goes on."""
    result = flow_tester.run(flow, {"count": 0})
    assert_completed(result)
    assert result.results["total"] == 0

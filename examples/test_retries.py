"""Half an hour of pauses takes no time in a test: the tester's clock jumps while nothing runs."""

# ruff: noqa: S101 (assert is how tests speak)
from examples.retries import flow, outages

from pyoco_server.testing import (
    FlowTester,
    assert_attempts,
    assert_completed,
    assert_failed,
    assert_never_started,
    assert_node_failed,
    assert_succeeded,
    pauses_of,
)


def test_it_tries_again(flow_tester: FlowTester) -> None:
    """Two failures, two pauses, and then it works."""
    outages(2)
    result = flow_tester.run(flow)
    assert_attempts(result, "fetch", 3)
    assert pauses_of(result, "fetch") == [60, 300]
    assert result.results["store"] == "stored data"


def test_a_failure_that_is_isolated_stops_nobody(flow_tester: FlowTester) -> None:
    """The run completes although a task of it failed."""
    outages(0)
    result = flow_tester.run(flow)
    assert_node_failed(result, "notify", code="ConnectionError")
    assert_succeeded(result, "store")
    assert_completed(result)


def test_it_gives_up_in_the_end(flow_tester: FlowTester) -> None:
    """One attempt and three retries; what depends on the task never begins."""
    outages(99)
    result = flow_tester.run(flow)
    assert_failed(result, node="fetch", code="ConnectionError")
    assert_attempts(result, "fetch", 4)
    assert_never_started(result, "notify", "store")

"""Waits in a test: bring the run to the wait, then answer, let time pass, or cancel."""

# ruff: noqa: S101 (assert is how tests speak)
from examples.approval import DAY_SEC, flow

from pyoco_server.testing import (
    FlowTester,
    assert_canceled,
    assert_completed,
    assert_never_started,
    assert_waiting,
)


def test_somebody_says_yes(flow_tester: FlowTester) -> None:
    """The answer is the result of the wait."""
    run_id = flow_tester.start(flow, {"topic": "cats"})
    flow_tester.wait_until_waiting(run_id, "approval")
    flow_tester.resume(run_id, "approval", True)  # noqa: FBT003 the answer
    result = flow_tester.wait(run_id)
    assert_completed(result)
    assert result.results["publish"] == "published: All about cats"


def test_nobody_answers(flow_tester: FlowTester) -> None:
    """Two days pass at once, and the default is taken."""
    result = flow_tester.run(flow, {"topic": "cats"})
    assert result.results["publish"] == "kept in the drawer"


def test_a_day_is_not_too_long(flow_tester: FlowTester) -> None:
    """Move the clock by hand to see what has not happened yet."""
    run_id = flow_tester.start(flow, {"topic": "cats"})
    flow_tester.wait_until_waiting(run_id, "approval")
    flow_tester.advance(DAY_SEC)
    assert_waiting(flow_tester.look(run_id), "approval")


def test_somebody_cancels(flow_tester: FlowTester) -> None:
    """Nothing that follows the wait is begun."""
    run_id = flow_tester.start(flow, {"topic": "cats"})
    flow_tester.wait_until_waiting(run_id, "approval")
    flow_tester.cancel(run_id, "wrong topic")
    result = flow_tester.wait(run_id)
    assert_canceled(result, reason="wrong topic")
    assert_never_started(result, "publish")

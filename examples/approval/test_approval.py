"""Waits in a test: bring the run to the wait, then answer, let time pass, or cancel."""

# ruff: noqa: S101 (assert is how tests speak)
from typing import Any

import pytest
from examples.approval.approval import DAY_SEC, refund

from pyoco_server.testing import (
    FlowTester,
    assert_canceled,
    assert_completed,
    assert_never_started,
    assert_waiting,
)


def _brought_to_the_wait(tester: FlowTester) -> str:
    run_id = tester.start(refund, {"order": "A-7"})
    tester.wait_until_waiting(run_id, "decision")
    return run_id


@pytest.mark.parametrize(("approved", "refunded"), [(True, 128), (False, 0)])
def test_the_answer_decides(flow_tester: FlowTester, *, approved: bool, refunded: int) -> None:
    """The answer is the result of the wait."""
    run_id = _brought_to_the_wait(flow_tester)
    flow_tester.resume(run_id, "decision", {"approved": approved, "by": "grace"})
    result = flow_tester.wait(run_id)
    assert_completed(result)
    assert result.results["settle"] == {"order": "A-7", "refunded": refunded, "decided_by": "grace"}


def test_without_an_answer_the_default_decides(flow_tester: FlowTester) -> None:
    """Two days pass at once, and nothing is paid."""
    result = flow_tester.run(refund)
    assert result.results["settle"] == {"order": "A-1001", "refunded": 0, "decided_by": "no answer in time"}


def test_a_day_is_not_too_long(flow_tester: FlowTester) -> None:
    """Move the clock by hand to see what has not happened yet."""
    run_id = _brought_to_the_wait(flow_tester)
    flow_tester.advance(DAY_SEC)
    assert_waiting(flow_tester.look(run_id), "decision")


@pytest.mark.parametrize("answer", [True, "yes", {"approved": "maybe", "by": "eve"}, {"approved": True}, None])
def test_an_answer_that_does_not_fit_is_refused(flow_tester: FlowTester, answer: Any) -> None:  # noqa: ANN401 any JSON
    """The wait continues, and takes an answer that fits."""
    run_id = _brought_to_the_wait(flow_tester)
    with pytest.raises(ValueError, match="does not fit the form of 'decision'"):
        flow_tester.resume(run_id, "decision", answer)
    assert_waiting(flow_tester.look(run_id), "decision")
    flow_tester.resume(run_id, "decision", {"approved": False, "by": "grace"})
    assert_completed(flow_tester.wait(run_id))


def test_a_cancel_ends_the_wait(flow_tester: FlowTester) -> None:
    """Nothing that follows the wait is begun."""
    run_id = _brought_to_the_wait(flow_tester)
    flow_tester.cancel(run_id, "the customer kept it")
    result = flow_tester.wait(run_id)
    assert_canceled(result, reason="the customer kept it")
    assert_never_started(result, "settle")

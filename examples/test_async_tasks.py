"""What a task itself sleeps is real time, so tests pass short delays."""

# ruff: noqa: S101 (assert is how tests speak)
from examples.async_tasks import cleaned_up, flow

from pyoco_server.testing import FlowTester, assert_canceled, assert_completed, assert_never_started, events_of


def test_both_are_asked_at_once(flow_tester: FlowTester) -> None:
    """Both begin before either is done."""
    result = flow_tester.run(flow, {"delay_sec": 0.02})
    assert_completed(result)
    assert result.results["add"] == 42
    begun = [result.events.index(event) for event in events_of(result, "NODE_STARTED")]
    done = [result.events.index(event) for event in events_of(result, "NODE_SUCCEEDED", node="ask_left")]
    assert max(begun[:2]) < done[0]


def test_a_cancel_reaches_a_coroutine_at_once(flow_tester: FlowTester) -> None:
    """An hour of waiting is cut short, and the coroutine cleans up."""
    cleaned_up.clear()
    run_id = flow_tester.start(flow, {"delay_sec": 3_600})
    flow_tester.wait_until_running(run_id, "ask_right")
    flow_tester.cancel(run_id)
    result = flow_tester.wait(run_id)
    assert_canceled(result)
    assert_never_started(result, "add")
    assert cleaned_up == ["right"]

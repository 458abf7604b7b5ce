"""A flow from a file is tested like any other."""

# ruff: noqa: S101 (assert is how tests speak)
from pathlib import Path

from pyoco_server import read_flow_yaml
from pyoco_server.testing import FlowTester, assert_completed, assert_failed, assert_succeeded, nodes_of

flow = read_flow_yaml((Path(__file__).parent / "flow.yaml").read_text(), name="orders")
ADDRESS = "1 Main Street, Springfield"


def test_a_small_order_goes_into_a_box(flow_tester: FlowTester) -> None:
    """Bring it to the wait, confirm, and see it shipped."""
    run_id = flow_tester.start(flow, {"address": ADDRESS})
    flow_tester.wait_until_waiting(run_id, "confirm")
    flow_tester.resume(run_id, "confirm")
    result = flow_tester.wait(run_id)
    assert_completed(result)
    assert result.results["ship"] == f"box of 1 to {ADDRESS}"
    assert nodes_of(result, "pack_crate") == []


def test_a_large_order_without_confirmation_fails_after_a_day(flow_tester: FlowTester) -> None:
    """A day in no time. Steps inside a switch have its name before theirs."""
    result = flow_tester.run(flow, {"address": ADDRESS, "amount": 99})
    assert_succeeded(result, ":switch/pack_crate")
    assert_failed(result, node="confirm", code="WAIT_DEADLINE")

"""How such a project tests its flows."""

from pyoco_server.testing import FlowResult, FlowTester, assert_completed, assert_order

from .flows import flow


def check_report() -> FlowResult:
    """A run to its end, in virtual time."""
    with FlowTester() as tester:
        run_id = tester.start(flow, {"month": "2026-01"})
        tester.wait_until_waiting(run_id, "approval")
        tester.resume(run_id, "approval", {"by": "ann"})
        result = tester.wait(run_id)
    assert_completed(result)
    assert_order(result, "fetch", "publish")
    return result

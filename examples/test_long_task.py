"""Progress is part of what happened; a cancel comes when the run is where the test wants it."""

from examples.long_task import flow

from pyoco_server.core import ExecutionState
from pyoco_server.testing import FlowTester, assert_canceled, assert_completed, assert_progress


def test_it_reports_how_far_it_is(flow_tester: FlowTester) -> None:
    """The last report of a task is always kept; of many in a short time some may be left out."""
    result = flow_tester.run(flow, {"blocks": 4})
    assert_completed(result)
    assert_progress(result, "crunch", 100)


def test_it_stops_when_asked_to(flow_tester: FlowTester) -> None:
    """Wait for the first report, then cancel: the task sees it and returns."""

    def has_begun(state: ExecutionState) -> bool:
        return bool(state.nodes["crunch"].progress)

    run_id = flow_tester.start(flow, {"blocks": 100_000})
    flow_tester.wait_until(run_id, has_begun, "the first block is done")
    flow_tester.cancel(run_id, "enough")
    assert_canceled(flow_tester.wait(run_id), reason="enough")

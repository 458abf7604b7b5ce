# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyoco import Flow, task

from pyoco_server import options, wait
from pyoco_server.core import CommandRejected
from pyoco_server.engine import UnknownRunError
from pyoco_server.testing import (
    FlowStuckError,
    FlowTester,
    assert_attempts,
    assert_canceled,
    assert_completed,
    assert_failed,
    assert_never_started,
    assert_order,
    assert_waiting,
    events_of,
    pauses_of,
)
from pyoco_server.testing.virtual_clock import START
from tests.testing import flows


@pytest.fixture
def tester() -> Iterator[FlowTester]:
    with FlowTester() as made:
        yield made


def since_start(tester: FlowTester) -> float:
    return (tester.now - START).total_seconds()


def test_a_flow_runs_to_its_end(tester: FlowTester) -> None:
    @task
    def add(a: int, b: int) -> int:
        return a + b

    result = tester.run(Flow("sum") >> add, {"a": 1, "b": 2}, run_id="sum-1")
    assert_completed(result)
    assert (result.run_id, result.results, result.status) == ("sum-1", {"add": 3}, "COMPLETED")
    assert since_start(tester) == 0


def test_hours_of_backoff_take_no_time(tester: FlowTester) -> None:
    began = time.monotonic()
    result = tester.run(flows.flaky(3, retries=3, backoff_sec=3_600))
    assert_completed(result)
    assert_attempts(result, "fetch", 4)
    assert pauses_of(result, "fetch") == [3_600] * 3
    assert since_start(tester) == 3 * 3_600
    assert time.monotonic() - began < 5


def test_two_identical_runs_have_the_same_log() -> None:
    def story() -> list[tuple[str, float]]:
        with FlowTester() as tester:
            events = tester.run(flows.flaky(2, retries=2, backoff_sec=10)).events
        return [(event.type, (event.occurred_at - START).total_seconds()) for event in events]

    assert story() == story()


def test_time_waits_for_the_test_while_a_node_waits_with_a_deadline(tester: FlowTester) -> None:
    run_id = tester.start(flows.approval(deadline_sec=60))
    tester.wait_until_waiting(run_id, "approval")
    for _ in range(200):  # plenty of turns of the engine's loop, and the deadline does not come nearer
        tester.events(run_id)
    assert since_start(tester) == 0
    assert_waiting(tester.look(run_id), "approval")
    tester.resume(run_id, "approval", "yes")
    result = tester.wait(run_id)
    assert_completed(result)
    assert result.results["publish"] == "text yes"
    assert since_start(tester) == 0


def test_a_deadline_passes_when_the_test_waits_for_the_end(tester: FlowTester) -> None:
    result = tester.run(flows.approval(deadline_sec=86_400))
    assert_failed(result, node="approval", code="WAIT_DEADLINE")
    assert_never_started(result, "publish")
    assert since_start(tester) == 86_400


def test_a_default_is_taken_at_the_deadline(tester: FlowTester) -> None:
    result = tester.run(flows.approval(deadline_sec=60, default="by default"))
    assert result.results["publish"] == "text by default"


def test_time_moved_by_hand_stops_short_of_a_deadline_or_passes_it(tester: FlowTester) -> None:
    run_id = tester.start(flows.approval(deadline_sec=60))
    tester.wait_until_waiting(run_id, "approval")
    tester.advance(59)
    assert_waiting(tester.events(run_id), "approval")
    tester.advance(1)
    assert_failed(tester.events(run_id), code="WAIT_DEADLINE")
    assert since_start(tester) == 60


def test_waiting_for_a_wait_behind_a_backoff(tester: FlowTester) -> None:
    flow = flows.flaky(1, retries=1, backoff_sec=600)
    run_id = tester.start(flow >> wait("approval"))
    tester.wait_until_waiting(run_id, "approval")
    assert since_start(tester) == 600


@pytest.mark.parametrize("where", ["thread", "async", "process"])
def test_time_does_not_jump_past_a_function_that_runs(tester: FlowTester, where: str) -> None:
    result = tester.run(flows.beside_a_wait(where, deadline_sec=5), {"real_sec": 0.1})
    assert_completed(result)
    assert_order(result, "work", "answer")
    assert events_of(result, "NODE_SUCCEEDED", node="work")[0].occurred_at == START
    assert since_start(tester) == 5


def test_a_run_that_waits_for_an_answer_is_reported_at_once(tester: FlowTester) -> None:
    began = time.monotonic()
    with pytest.raises(FlowStuckError, match=r"waits for somebody to resume 'approval'[\s\S]*draft: SUCCEEDED"):
        tester.run(flows.approval())
    assert time.monotonic() - began < 5


def test_a_node_that_never_waits_is_reported_at_once(tester: FlowTester) -> None:
    run_id = tester.start(flows.flaky(0, retries=0, backoff_sec=0))
    with pytest.raises(FlowStuckError, match=r"ended COMPLETED, and never came to where node 'approval' waits"):
        tester.wait_until_waiting(run_id, "approval")
    other = tester.start(flows.approval())
    with pytest.raises(FlowStuckError, match=r"goes no further, .* where node 'draft' waits[\s\S]*WAITING"):
        tester.wait_until_waiting(other, "draft")


def test_waiting_for_any_condition(tester: FlowTester) -> None:
    run_id = tester.start(flows.flaky(3, retries=3, backoff_sec=10))
    tester.wait_until(run_id, lambda state: state.nodes["fetch"].failures == 2, "fetch failed twice")
    assert since_start(tester) == 10
    with pytest.raises(FlowStuckError, match=r"ended COMPLETED, and never came to where fetch failed for good"):
        tester.wait_until(run_id, lambda state: state.nodes["fetch"].status == "FAILED", "fetch failed for good")


def test_patience_ends() -> None:
    released = threading.Event()
    with FlowTester(patience_sec=1) as tester:
        with pytest.raises(FlowStuckError, match=r"has not ended after 1 s of real time[\s\S]*work: RUNNING"):
            tester.run(flows.stubborn(released))
        released.set()


def test_a_cancel_while_waiting(tester: FlowTester) -> None:
    run_id = tester.start(flows.approval())
    tester.wait_until_waiting(run_id, "approval")
    assert tester.cancel(run_id, "changed my mind")
    result = tester.wait(run_id)
    assert_canceled(result, reason="changed my mind")
    assert tester.cancel(run_id) is False


def test_a_cancel_during_a_long_backoff(tester: FlowTester) -> None:
    run_id = tester.start(flows.flaky(1, retries=1, backoff_sec=3_600))
    tester.advance(10)
    tester.cancel(run_id)
    assert_canceled(tester.wait(run_id))
    assert since_start(tester) < 3_600


def test_the_grace_of_a_cancel_is_passed_by_hand(tester: FlowTester) -> None:
    released = threading.Event()
    run_id = tester.start(flows.stubborn(released))
    tester.wait_until_running(run_id, "work")
    tester.cancel(run_id)
    tester.advance(10, overtake=True)
    assert_canceled(tester.wait(run_id))
    released.set()


def test_advancing_over_a_function_that_begins_on_the_way_and_does_not_end() -> None:
    released = threading.Event()
    attempts: list[int] = []

    @task
    def work() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        released.wait(30)

    with FlowTester(patience_sec=1) as tester:
        tester.start(Flow("hangs") >> options(work, retries=1, backoff=60))
        tester.advance(1)
        with pytest.raises(FlowStuckError, match=r"advance\(100\)"):
            tester.advance(100)
        released.set()


def test_several_runs_at_once(tester: FlowTester) -> None:
    slow = tester.start(flows.flaky(1, retries=1, backoff_sec=100))
    quick = tester.start(flows.flaky(1, retries=1, backoff_sec=10))
    assert_completed(tester.wait(quick))
    assert since_start(tester) == 10
    assert_completed(tester.wait(slow))
    assert since_start(tester) == 100


def test_nothing_is_left_behind() -> None:
    @task
    def save(ctx) -> str:  # noqa: ANN001 pyoco's context
        return str(ctx.save_artifact("report.txt", "hello"))

    with FlowTester() as tester:
        path = Path(tester.run(Flow("saves") >> save).results["save"])
        assert path.read_text() == "hello"
    assert not path.exists()
    assert not path.parent.parent.exists()


def test_unknown_runs_and_refused_commands_are_errors(tester: FlowTester) -> None:
    with pytest.raises(UnknownRunError):
        tester.wait("unknown")
    run_id = tester.start(flows.approval())
    tester.wait_until_waiting(run_id, "approval")
    with pytest.raises(CommandRejected):
        tester.resume(run_id, "draft")


def test_a_run_left_alone_does_not_keep_the_tester_from_closing() -> None:
    with FlowTester() as tester:
        tester.start(flows.approval(deadline_sec=60))
        tester.start(flows.flaky(1, retries=1, backoff_sec=60))

# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"

from collections.abc import Callable, Iterator

import pytest
from pyoco import Flow, task

from pyoco_server import options, wait
from pyoco_server.flows.yaml.document import read_flow_yaml
from pyoco_server.testing import (
    FlowResult,
    FlowTester,
    assert_attempts,
    assert_canceled,
    assert_completed,
    assert_failed,
    assert_never_started,
    assert_node_failed,
    assert_order,
    assert_progress,
    assert_succeeded,
    assert_waiting,
    events_of,
    nodes_of,
)
from tests.testing import flows


@pytest.fixture(scope="module")
def tester() -> Iterator[FlowTester]:
    with FlowTester() as made:
        yield made


@pytest.fixture(scope="module")
def completed(tester: FlowTester) -> FlowResult:
    @task
    def first() -> int:
        return 1

    @task
    def second() -> int:
        return 2

    return tester.run(Flow("two") >> first >> second)


@pytest.fixture(scope="module")
def failed(tester: FlowTester) -> FlowResult:
    return tester.run(flows.flaky(9, retries=1, backoff_sec=1) >> wait("after"))


@pytest.fixture(scope="module")
def canceled(tester: FlowTester) -> FlowResult:
    run_id = tester.start(flows.approval())
    tester.wait_until_waiting(run_id, "approval")
    tester.cancel(run_id, "enough")
    return tester.wait(run_id)


def test_what_is_true_passes(completed: FlowResult, failed: FlowResult, canceled: FlowResult) -> None:
    assert_completed(completed)
    assert_succeeded(completed, "first", "second")
    assert_order(completed, "first", "second")
    assert_attempts(completed, "first", 1)
    assert_failed(failed)
    assert_failed(failed, node="fetch", code="ConnectionError")
    assert_node_failed(failed, "fetch", code="ConnectionError")
    assert_attempts(failed, "fetch", 2)
    assert_never_started(failed, "after", "no such node")
    assert_canceled(canceled, reason="enough")


def test_events_alone_will_do(completed: FlowResult) -> None:
    assert_completed(completed.events)
    assert_order(list(completed.events), "first", "second")


Check = Callable[[FlowResult], None]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (assert_failed, "the run should be FAILED, and is COMPLETED"),
        (assert_canceled, "the run should be CANCELED, and is COMPLETED"),
        (lambda it: assert_order(it, "second", "first"), "'first' succeeded before 'second'; .* first → second"),
        (lambda it: assert_attempts(it, "first", 3), "'first' was begun once, not 3 times"),
        (lambda it: assert_attempts(it, "third", 1), "no node 'third'"),
        (lambda it: assert_succeeded(it, "third"), "no node 'third'"),
        (lambda it: assert_waiting(it, "first"), "'first' should be WAITING, and is SUCCEEDED"),
        (lambda it: assert_node_failed(it, "first"), "'first' should be FAILED, and is SUCCEEDED"),
        (lambda it: assert_never_started(it, "first"), "'first' was begun"),
        (lambda it: assert_progress(it, "first", 50), r"reported the progress \[\], not \[50\]"),
    ],
)
def test_what_is_false_of_a_completed_run(completed: FlowResult, check: Check, message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check(completed)
    assert "the run is COMPLETED\n  first: SUCCEEDED\n  second: SUCCEEDED" in str(caught.value)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (assert_completed, "the run should be COMPLETED, and is FAILED"),
        (lambda it: assert_failed(it, node="after"), "because of 'fetch', not 'after'"),
        (lambda it: assert_failed(it, code="TIMEOUT"), "the code 'ConnectionError', not 'TIMEOUT'"),
        (lambda it: assert_node_failed(it, "fetch", code="TIMEOUT"), "the code 'ConnectionError', not 'TIMEOUT'"),
    ],
)
def test_what_is_false_of_a_failed_run(failed: FlowResult, check: Check, message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check(failed)
    assert "failed at 'fetch'" in str(caught.value)
    assert "fetch: FAILED, attempt 2, ConnectionError: no answer" in str(caught.value)


def test_the_reason_of_a_cancel(canceled: FlowResult) -> None:
    with pytest.raises(AssertionError, match="with the reason 'enough', not 'other'"):
        assert_canceled(canceled, reason="other")


def test_an_isolated_failure_is_a_node_s_own(tester: FlowTester) -> None:
    @task
    def breaks() -> None:
        raise ValueError("no")

    @task
    def other() -> None:
        return None

    flow = Flow("isolated")
    flow.add_task(options(breaks, fail_policy="isolate").task)
    flow.add_task(other.task)
    result = tester.run(flow)
    assert_node_failed(result, "breaks", code="ValueError")
    assert_succeeded(result, "other")


def test_events_by_type_and_node(failed: FlowResult) -> None:
    assert len(events_of(failed, "NODE_FAIL_REPORTED", node="fetch")) == 2
    assert len(events_of(failed, "EXECUTION_FAILED")) == 1
    assert events_of(failed, "EXECUTION_FAILED", node="fetch") == []
    with pytest.raises(ValueError, match="NODE_EXPLODED"):
        events_of(failed, "NODE_EXPLODED")


def double() -> str:
    return "done"


def test_the_nodes_of_a_task_in_a_loop(tester: FlowTester) -> None:
    text = (
        "flow: {graph: \"foreach(over='$ctx.params.n') { double }\"}\n"
        f"tasks: {{double: {{callable: '{__name__}:double'}}}}"
    )
    result = tester.run(read_flow_yaml(text, name="loop"), {"n": [1, 2]})
    assert_completed(result)
    assert nodes_of(result, "double") == [":foreach[0]/double", ":foreach[1]/double"]
    assert nodes_of(result, "triple") == []


def test_progress_in_order(tester: FlowTester) -> None:
    @task
    def count(ctx) -> None:  # noqa: ANN001 pyoco's context
        for percent in (0, 50, 100):
            ctx.progress(percent, f"at {percent}")

    result = tester.run(Flow("counts") >> count)
    assert_progress(result, "count", 100)
    reported = [event.payload.progress for event in events_of(result, "NODE_PROGRESS_REPORTED")]  # type: ignore[attr-defined]
    assert reported == sorted(reported)
    with pytest.raises(AssertionError, match="reported the progress"):
        assert_progress(result, "count", 100, 0)

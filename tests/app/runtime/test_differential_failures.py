"""Failures, retries and triggers in networks, on both engines."""

import concurrent.futures
import threading
import time
from typing import Any

import pytest
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import (
    Build,
    Built,
    Cases,
    add,
    after,
    agree,
    failing,
    flaky,
    network,
    returning,
    run_on_both,
    step,
)

case = Cases()


@case
def failure_of_the_only_task() -> Built:
    return Built(Flow() >> failing("a"))


@case
def failure_in_a_chain() -> Built:
    return Built(Flow() >> returning("a", 1) >> failing("b", KeyError("k")) >> returning("c", 2) >> returning("d"))


@case
def failure_of_a_join() -> Built:
    return Built(Flow() >> [returning("a", 1), returning("b", 2)] >> failing("c") >> [returning("d"), returning("e")])


@case
def failure_with_an_error_of_the_users_own() -> Built:
    class OddError(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}", code)

    return Built(Flow() >> failing("a", OddError(7)))


@case
def failure_with_a_group_of_errors() -> Built:
    return Built(Flow() >> failing("a", ExceptionGroup("both", [ValueError("x"), KeyError("y")])))


@case
def failure_with_a_cancelled_future() -> Built:
    return Built(Flow() >> failing("a", concurrent.futures.CancelledError("gone")))


@case
def failure_with_a_timeout_of_the_tasks_own() -> Built:
    return Built(Flow() >> failing("a", TimeoutError("my own"), timeout_sec=30))


@case
def failure_policy_retry() -> Built:
    return Built(Flow() >> failing("a", fail_policy="retry") >> returning("b"))


@case
def isolated_failure_of_the_only_task() -> Built:
    return Built(Flow() >> failing("a", fail_policy="isolate"))


@case
def isolated_failure_beside_others() -> Built:
    return Built(
        Flow() >> returning("a", 1) >> [failing("b", fail_policy="isolate"), returning("c", 3), returning("d", 4)]
    )


@case
def isolated_failure_before_one_task() -> Built:
    return Built(Flow() >> failing("a", fail_policy="isolate") >> returning("b"))


@case
def isolated_failure_before_a_join() -> Built:
    return Built(Flow() >> [failing("a", fail_policy="isolate"), returning("b", 2)] >> returning("c"))


@case
def isolated_task_that_succeeds() -> Built:
    return Built(Flow() >> returning("a", 1, fail_policy="isolate") >> returning("b", 2))


@case
def all_isolated_failures() -> Built:
    return Built(network(*(failing(name, fail_policy="isolate") for name in "abc")))


@case
def stop_after_an_isolated_failure() -> Built:
    def once_a_failed(ctx: Any) -> int:
        while ctx.run_context.tasks["a"].value != "FAILED":
            time.sleep(0.001)
        return 1

    a, b, c = failing("a", fail_policy="isolate"), step(once_a_failed, "b"), failing("c")
    after(c, b)
    return Built(network(a, b, c))


@case
def retries_until_success() -> Built:
    return Built(Flow() >> flaky("a", 2, retries=2) >> step(lambda a: a, "b"))


@case
def retries_not_needed() -> Built:
    return Built(Flow() >> flaky("a", 0, retries=3))


@case
def retries_exhausted() -> Built:
    return Built(Flow() >> flaky("a", 5, retries=1) >> returning("b"))


@case
def retries_exhausted_in_isolation() -> Built:
    return Built(network(flaky("a", 5, retries=1, fail_policy="isolate"), returning("b", 2)))


@case
def retries_of_a_missing_reference() -> Built:
    return Built(Flow() >> add("a", inputs={"x": "$node.q.output"}, retries=1))


@case
def negative_retries() -> Built:
    return Built(Flow() >> flaky("a", 1, retries=-1))


@case
def timeout_not_reached() -> Built:
    return Built(Flow() >> returning("a", 1, timeout_sec=30) >> flaky("b", 1, timeout_sec=30.5, retries=1))


@case
def timeout_of_nothing_is_none() -> Built:
    return Built(Flow() >> returning("a", 1, timeout_sec=0))


# --- Networks: triggers ----------------------------------------------------------------------------------------------


@case
def any_with_two_successes() -> Built:
    return Built(network(a := returning("a"), b := returning("b"), after(returning("c", trigger_policy="ANY"), a, b)))


@case
def any_with_one_isolated_failure() -> Built:
    a, b, c = failing("a", fail_policy="isolate"), returning("b", 2), returning("c", 3, trigger_policy="ANY")
    return Built(network(a, b, after(c, a, b)))


@case
def any_with_failures_only() -> Built:
    a, b = failing("a", fail_policy="isolate"), failing("b", fail_policy="isolate")
    return Built(network(a, b, after(returning("c", trigger_policy="ANY"), a, b)))


@case
def any_with_one_dependency() -> Built:
    return Built(network(a := returning("a", 1), after(returning("b", trigger_policy="ANY"), a)))


@case
def any_with_one_dependency_that_fails() -> Built:
    a = failing("a", fail_policy="isolate")
    return Built(network(a, after(returning("b", trigger_policy="ANY"), a)))


@case
def any_without_dependencies() -> Built:
    return Built(Flow() >> returning("a", 1, trigger_policy="ANY"))


def _late(late: TaskWrapper, begun: threading.Event) -> Built:
    a = returning("a", 1)
    c = step(begun.set, "c", trigger_policy="ANY")
    return Built(network(a, late, after(c, a, late)))


@case
def any_goes_on_before_the_other_succeeds() -> Built:
    begun = threading.Event()
    return _late(step(lambda: begun.wait(10), "b"), begun)


def _waits_then_fails(begun: threading.Event, **options: Any) -> TaskWrapper:
    def fail() -> None:
        begun.wait(10)
        raise ValueError("late")

    return step(fail, "b", **options)


@case
def any_goes_on_before_the_other_fails() -> Built:
    begun = threading.Event()
    return _late(_waits_then_fails(begun), begun)


@case
def any_goes_on_before_the_other_fails_in_isolation() -> Built:
    begun = threading.Event()
    return _late(_waits_then_fails(begun, fail_policy="isolate"), begun)


@case
def unknown_trigger_means_all() -> Built:
    a, b = returning("a", 1), returning("b", 2)
    return Built(network(a, b, after(step(lambda a, b: a + b, "c", trigger_policy="any"), a, b)))


@case
def all_after_any() -> Built:
    a, b = failing("a", fail_policy="isolate"), returning("b", 2)
    c = after(returning("c", 3, trigger_policy="ANY"), a, b)
    return Built(network(a, b, c, after(step(lambda b, c: [b, c], "d"), b, c)))


@pytest.mark.parametrize("build", case.values(), ids=case)
def test_the_two_engines_agree(engine: Engine, build: Build) -> None:
    agree(engine, build)


def test_cases_of_failure_fail(engine: Engine) -> None:
    """Or the comparison would compare nothing."""
    _, _, ours, _ = run_on_both(engine, case["failure_in_a_chain"])
    assert ours.status == "FAILED"
    assert ours.error == ("KeyError", "'k'")
    assert ours.tasks == {"a": "SUCCEEDED", "b": "FAILED", "c": "PENDING", "d": "PENDING"}

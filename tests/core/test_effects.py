"""The effects of a commit."""

import pytest

from pyoco_server.core import CancelMode, Effect, Event, ExecutionStatus, effects
from pyoco_server.core.effects import EndExecution, InterruptNode, RetryNode, RunNode, WakeNode
from tests.build import Run, chain, diamond, event, graph


def asked(run: Run, made: list[Event]) -> list[Effect]:
    return effects(made, run.state)


@pytest.mark.spec("002 §10")
def test_starting_runs_the_first_task() -> None:
    run = Run(chain("a"), started=False)
    assert asked(run, run.do("StartExecution")) == [RunNode("a", 1)]


@pytest.mark.spec("002 §10")
def test_creating_an_execution_has_no_effect() -> None:
    run = Run(chain("a"), started=False)
    assert asked(run, run.log) == []


@pytest.mark.spec("002 §10", "003 §7.1")
def test_fork_runs_all_its_branches_and_no_control_node() -> None:
    run = Run(diamond("a", "b"), started=False)
    assert asked(run, run.do("StartExecution")) == [RunNode("a", 1), RunNode("b", 1)]


@pytest.mark.parametrize("node_type", ["Task", "Wait", "Approval"])
def test_every_kind_of_work_is_run(node_type: str) -> None:
    run = Run(graph(f"s:Start a:{node_type} z:Success", "s>a a>z"), started=False)
    assert asked(run, run.do("StartExecution")) == [RunNode("a", 1)]


@pytest.mark.spec("002 §10", "003 §7.2")
def test_passed_join_runs_what_follows() -> None:
    run = Run(diamond("a", "b"))
    run.succeed("a")
    assert asked(run, run.succeed("b")) == [RunNode("after", 1)]


@pytest.mark.parametrize("name", ["StartNode", "ReportNodeProgress", "PutNodeWaiting"])
def test_records_have_no_effect(name: str) -> None:
    run = Run(chain("a"))
    if name != "StartNode":
        run.start("a")
    assert asked(run, run.do(name, "a")) == []


def test_failed_attempt_with_attempts_left_is_tried_again() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"retries": 1}))
    assert asked(run, run.fail("a")) == [RetryNode("a", 2)]


def test_last_failed_attempt_is_not_tried_again() -> None:
    run = Run(chain("a"))
    assert asked(run, run.fail("a")) == [EndExecution(ExecutionStatus.FAILED)]


def test_a_retry_that_has_started_is_no_effect() -> None:
    run = Run(graph("s:Start a z:Success", "s>a a>z", a={"retries": 1}))
    made = run.fail("a")
    run.start("a")
    assert asked(run, made) == []


@pytest.mark.spec("003 §8.2")
def test_resume_wakes_the_node_with_what_was_given() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("PutNodeWaiting", "a", waitKey="k")
    assert asked(run, run.do("ResumeNode", "a", resumeKey="k", approved=True)) == [WakeNode("a", 1, {"approved": True})]


def test_resume_undone_by_a_later_event_of_the_commit_has_no_effect() -> None:
    run = Run(chain("a"))
    run.start("a")
    run.do("PutNodeWaiting", "a")
    made = run.do("ResumeNode", "a") + run.do("SucceedNode", "a")
    assert asked(run, made) == [EndExecution(ExecutionStatus.COMPLETED)]


@pytest.mark.spec("003 §8.3")
def test_cancel_interrupts_the_running_node() -> None:
    run = Run(diamond("a", "b"))
    run.do("StartNode", "a", workerId="w-1")
    assert asked(run, run.do("CancelExecution")) == [InterruptNode("a", 1, "w-1")]


@pytest.mark.spec("003 §8.3")
def test_immediate_cancel_interrupts_and_ends() -> None:
    run = Run(chain("a"))
    run.start("a")
    made = run.do("CancelExecution", cancel_mode=CancelMode.IMMEDIATE)
    assert asked(run, made) == [InterruptNode("a", 1, None), EndExecution(ExecutionStatus.CANCELED)]


def test_ready_node_canceled_in_the_same_commit_is_not_run() -> None:
    run = Run(graph("s:Start f:Fork a b c:Canceled z:Success", "s>f f>a f>b a>c b>z"), started=False)
    made = run.do("StartExecution") + run.succeed("a")
    assert asked(run, made) == [EndExecution(ExecutionStatus.CANCELED)]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("EXECUTION_COMPLETED", ExecutionStatus.COMPLETED),
        ("EXECUTION_FAILED", ExecutionStatus.FAILED),
        ("EXECUTION_CANCELED", ExecutionStatus.CANCELED),
    ],
)
def test_effect_of_an_end_has_the_current_status(name: str, status: ExecutionStatus) -> None:
    run = Run(chain("a"))
    assert asked(run, run.commit([event(name)])) == [EndExecution(status)]


def test_effects_can_be_derived_again_from_the_log() -> None:
    run = Run(diamond("a", "b"))
    made = run.succeed("a") + run.succeed("b")
    assert asked(run, made) == asked(run, made) == [RunNode("after", 1)]

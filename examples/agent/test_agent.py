"""The model of the example always decides the same, so a test can say what the agent does."""

# ruff: noqa: S101 (assert is how tests speak)
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from examples.agent import tasks
from examples.agent.model import Turn

from pyoco_server import read_flow_yaml
from pyoco_server.testing import FlowTester, assert_attempts, assert_completed, assert_failed, nodes_of

flow = read_flow_yaml((Path(__file__).parent / "agent.yaml").read_text(), name="agent")
ASKED = ":until[1]/:switch/approve"
GOAL = {"goal": "Refund order B-9, please."}


def _decided(tester: FlowTester, answer: str) -> dict[str, Any]:
    run_id = tester.start(flow, GOAL)
    tester.wait_until_waiting(run_id, ASKED)
    tester.resume(run_id, ASKED, answer)
    result = tester.wait(run_id)
    assert_completed(result)
    return dict(result.results)


def test_it_asks_before_it_pays(flow_tester: FlowTester) -> None:
    """Looking up needs no person; the refund waits for one; then the run continues by itself."""
    results = _decided(flow_tester, "yes please")
    assert results["answer"] == "B-9: refunded, and Ada knows"
    assert [(turn["tool"], turn["allowed"]) for turn in results["act"]["history"]] == [
        ("look_up", True),
        ("refund", True),
        ("write_to", True),
    ]


def test_a_no_is_a_no(flow_tester: FlowTester) -> None:
    """Nothing is paid, and the model gets the refusal."""
    results = _decided(flow_tester, "no")
    assert results["answer"] == "B-9: I was not allowed to refund"
    assert results["act"]["history"][1]["result"] is None


def test_without_an_answer_the_agent_does_not_pay(flow_tester: FlowTester) -> None:
    """The clock of the test jumps a day ahead; the default answer is no."""
    result = flow_tester.run(flow, GOAL)
    assert result.results["answer"] == "B-9: I was not allowed to refund"


def test_a_tool_that_is_not_there_ends_the_run(flow_tester: FlowTester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may say anything. It is asked again, and then the run fails; nothing was done."""

    class Dreamer:
        def next_step(self, goal: str, history: Sequence[Turn]) -> dict[str, Any]:
            return {"tool": "launch", "arguments": {"goal": goal, "after": len(history)}}

    monkeypatch.setattr(tasks, "MODEL", Dreamer())
    result = flow_tester.run(flow, GOAL)
    assert_failed(result, code="ValueError")
    assert_attempts(result, nodes_of(result, "think")[0], 4)
    assert nodes_of(result, "act") == []

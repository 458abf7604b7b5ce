"""Progress is part of what happened; a cancel comes when the run is where the test wants it."""

# ruff: noqa: S101 (assert is how tests speak)
import json
from pathlib import Path
from typing import Any

from examples.model_training.model_training import training

from pyoco_server.core import ExecutionState
from pyoco_server.testing import (
    FlowTester,
    assert_canceled,
    assert_completed,
    assert_never_started,
    assert_progress,
    events_of,
)


def _params(folder: Path, **more: Any) -> dict[str, Any]:  # noqa: ANN401 any parameter
    return {"epoch_sec": 0, "epochs": 200, "checkpoint": str(folder / "checkpoint.json"), **more}


def _checkpoint(folder: Path) -> dict[str, Any]:
    model: dict[str, Any] = json.loads((folder / "checkpoint.json").read_text())
    return model


def test_it_learns_and_reports_progress(flow_tester: FlowTester, tmp_path: Path) -> None:
    """The last report of a task is always kept; of many in a short time some may be left out."""
    result = flow_tester.run(training, _params(tmp_path))
    assert_completed(result)
    assert_progress(result, "train", 100)
    assert round(result.results["train"]["slope"], 1) == 3.0
    assert round(result.results["train"]["offset"], 1) == -1.0
    assert result.results["evaluate"]["worst"] < 0.5


def test_a_cancelled_training_continues_where_it_stopped(flow_tester: FlowTester, tmp_path: Path) -> None:
    """Cancel after the first report; another run does only what is left."""

    def has_begun(state: ExecutionState) -> bool:
        return bool(state.nodes["train"].progress)

    run_id = flow_tester.start(training, _params(tmp_path, epochs=1_000_000, epoch_sec=0.001))
    flow_tester.wait_until(run_id, has_begun, "an epoch is done")
    flow_tester.cancel(run_id, "the price of power went up")
    result = flow_tester.wait(run_id)
    assert_canceled(result, reason="the price of power went up")
    assert_never_started(result, "evaluate")
    done = _checkpoint(tmp_path)["epoch"]
    assert done > 0

    again = flow_tester.run(training, _params(tmp_path, epochs=done + 1))
    assert_completed(again)
    assert _checkpoint(tmp_path)["epoch"] == done + 1
    assert len(events_of(again, "NODE_PROGRESS_REPORTED", node="train")) == 1


def test_a_training_that_is_done_is_not_done_again(flow_tester: FlowTester, tmp_path: Path) -> None:
    """Called a second time, as after a worker's death: it finds everything done."""
    first = flow_tester.run(training, _params(tmp_path))
    second = flow_tester.run(training, _params(tmp_path))
    assert second.results["train"] == first.results["train"]
    assert not events_of(second, "NODE_PROGRESS_REPORTED", node="train")

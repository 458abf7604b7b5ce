"""A long training that reports its progress, stops when asked to, and continues from its last checkpoint.

The model is a straight line through noisy points, found by gradient descent: small enough to read, slow enough to
watch.
"""

# mypy: disable-error-code="import-untyped, untyped-decorator"
import json
import random
import time
from pathlib import Path
from typing import Any

from pyoco import Flow, task

from pyoco_server import TaskContext

SLOPE, OFFSET = 3.0, -1.0


@task
def load_data(points: int = 200, seed: int = 7) -> list[list[float]]:
    """Return points around a line. The seed is a parameter, so every call returns the same data."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    xs = [chance.uniform(-1, 1) for _ in range(points)]
    return [[x, SLOPE * x + OFFSET + chance.gauss(0, 0.1)] for x in xs]


@task
def train(
    ctx: TaskContext,
    load_data: list[list[float]],
    epochs: int = 200,
    epoch_sec: float = 0.1,
    checkpoint: str = "artifacts/checkpoint.json",
) -> dict[str, Any]:
    """Train one epoch at a time; after each, write a checkpoint, report progress, and check for a cancel."""
    model = _kept(Path(checkpoint))
    while model["epoch"] < epochs:
        if ctx.is_cancelled:
            break  # the checkpoint is written; the run ends CANCELLED whatever is returned here
        model = _epoch(model, load_data)
        time.sleep(epoch_sec)  # the work of a larger model
        _keep(model, Path(checkpoint))
        ctx.progress(100 * model["epoch"] / epochs, f"epoch {model['epoch']}, loss {model['loss']:.4f}")
    return model


@task
def evaluate(train: dict[str, Any], load_data: list[list[float]]) -> dict[str, float]:
    """Is it any good?"""
    worst = max(abs(train["slope"] * x + train["offset"] - y) for x, y in load_data)
    return {"loss": round(train["loss"], 4), "worst": round(worst, 2)}


def _epoch(model: dict[str, Any], data: list[list[float]], rate: float = 0.3) -> dict[str, Any]:
    errors = [(model["slope"] * x + model["offset"] - y, x) for x, y in data]
    return {
        "epoch": model["epoch"] + 1,
        "slope": model["slope"] - rate * sum(error * x for error, x in errors) / len(errors),
        "offset": model["offset"] - rate * sum(error for error, _ in errors) / len(errors),
        "loss": sum(error * error for error, _ in errors) / len(errors),
    }


def _kept(file: Path) -> dict[str, Any]:
    """Return the last checkpoint, of another run or of an earlier attempt whose worker died."""
    if not file.exists():
        return {"epoch": 0, "slope": 0.0, "offset": 0.0, "loss": 0.0}
    model: dict[str, Any] = json.loads(file.read_text())
    return model


def _keep(model: dict[str, Any], file: Path) -> None:
    """Replace the file as a whole: a process that is killed meanwhile leaves the previous checkpoint."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(model))
    new.replace(file)


training = Flow("model-training") >> load_data >> train >> evaluate

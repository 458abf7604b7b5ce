"""A run that grows without end fails at the limits of the platform, whatever makes it grow."""

from typing import Any

import pytest

from pyoco_server.flows.limits import RunLimits
from tests.worker.world import World, attempt

LIMITS = RunLimits(rounds=20, nodes=50, events=400)


def one() -> int:
    return 1


def refuse() -> None:
    raise ValueError("no")


def talk(ctx: Any) -> None:
    for number in range(100):
        ctx.progress(number, "busy")


def flow(graph: str, function: str = "one", options: str = "") -> str:
    tasks = f'tasks:\n  a: {{ callable: "tests.worker.test_run_limits:{function}"{options} }}\n'
    return f"version: 1\nflow:\n  graph: |\n    {graph}\n{tasks}"


def ended(text: str, params: dict[str, Any] | None = None, limits: RunLimits = LIMITS) -> tuple[dict[str, Any], int]:
    """Return the snapshot of a run and the number of its events."""
    found: list[tuple[dict[str, Any], int]] = []

    async def body(world: World) -> None:
        world.limits = limits
        run_id = await world.submit("uploaded", params or {}, workflow_yaml=text)
        await world.hand({}).work()
        found.append((await world.stored(run_id), len(await world.events(run_id))))

    attempt(body)
    return found[0]


@pytest.mark.parametrize(
    ("graph", "params", "says"),
    [
        ("repeat(count={{ n }}){ a }", {"n": 10**9}, "has 1000000000 rounds, and a loop may have 20"),
        ("repeat(count={{ $ctx.params.n * 10 }}){ a }", {"n": 10**8}, "has 1000000000 rounds"),
        ("repeat(count=21){ a }", {}, "has 21 rounds"),
        ("foreach(over={{ n }}, parallel=4){ a }", {"n": [0] * 21}, "has 21 rounds"),
        ("until(cond={{ params.n }}, max_iter=1000){ a }", {"n": 0}, "has 21 rounds"),
        ("until(cond={{ params.n }}){ a }", {"n": 0}, "has 21 rounds"),
        ("repeat(count=10){ repeat(count={{ n }}){ a } }", {"n": 10}, "the run needs more than 50 nodes"),
        ("foreach(over={{ n }}, parallel=3){ repeat(count=10){ a } }", {"n": [0] * 9}, "more than 50 nodes"),
    ],
)
def test_loops(graph: str, params: dict[str, Any], says: str) -> None:
    snapshot, events = ended(flow(graph), params)
    assert snapshot["status"] == "FAILED"
    assert says in snapshot["error"]
    assert "let the operator raise PYOCO_RUN_MAX_" in snapshot["error"]
    assert events < 50 * 8


def test_an_isolated_round_does_not_hide_the_limit() -> None:
    graph = "foreach(over={{ n }}){ repeat(count=10){ a } }"
    snapshot, _ = ended(flow(graph, "refuse", ", fail_policy: isolate"), {"n": [0] * 20}, RunLimits(nodes=12))
    assert snapshot["status"] == "FAILED"
    assert "more than 12 nodes" in snapshot["error"]


def test_retries() -> None:
    text = flow("a", "refuse", ", retries: 1000000000, backoff: 0")
    snapshot, events = ended(text, limits=RunLimits(events=60))
    assert snapshot["status"] == "FAILED"
    assert "the run has 6" in snapshot["error"]
    assert "the last attempt: ValueError: no" in snapshot["error"]
    assert 60 <= events < 80


def test_progress_ends_and_the_run_goes_on() -> None:
    snapshot, events = ended(flow("a", "talk"), limits=RunLimits(events=6))
    assert snapshot["status"] == "COMPLETED"
    assert events < 20


def test_a_run_at_the_limits_completes() -> None:
    snapshot, events = ended(flow("repeat(count=20){ a }"), limits=RunLimits(rounds=20, nodes=50, events=1_000))
    assert snapshot["status"] == "COMPLETED"
    assert events > 40

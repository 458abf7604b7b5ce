"""Flows that Python calls equal, and whose values have other types, stay distinct in the logs of their runs."""

from collections.abc import Sequence

import pytest

from pyoco_server.core import NodeStatus
from tests.worker.world import USER, World, attempt

FLOW = """version: 1
flow:
  graph: w >> show
tasks:
  w: {{wait: {{key: w}}}}
  show: {{callable: "tests.worker.test_equal_flows:kind", inputs: {{value: {value}}}}}
"""
VALUES: dict[str, object] = {"1": 1, "true": True, "1.0": 1.0, "0.0": 0.0, "-0.0": -0.0, "[1]": [1], "[true]": [True]}
"""By their text in a flow.yaml."""
EQUAL = [("1", "true"), ("true", "1"), ("1", "1.0"), ("0.0", "-0.0"), ("[1]", "[true]")]


def kind(value: object) -> str:
    return f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize("values", EQUAL)
def test_a_run_that_is_taken_over_calls_its_tasks_with_values_of_its_own_flow(values: Sequence[str]) -> None:
    async def body(world: World) -> None:
        first, second, shown, codes = world.hand({}, "w1"), world.hand({}, "w2"), [], set()
        runs = [await world.submit("f", workflow_yaml=FLOW.format(value=value)) for value in values]
        for _ in runs:
            await first.work()
        for run_id in runs:
            await world.resume(run_id, "w", 1, USER)
            await second.work()
            state = await world.state(run_id)
            assert state.nodes["show"].status is NodeStatus.SUCCEEDED
            shown.append((state.nodes["show"].output or {})["value"])
            codes.add((await world.stored(run_id))["code"]["sha256"])
        assert shown == [kind(VALUES[value]) for value in values]
        assert len(codes) == 2

    attempt(body)

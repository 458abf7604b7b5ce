"""A loop makes a node for each round; ``nodes_of`` finds them by the name of the task."""

# ruff: noqa: S101 (assert is how tests speak)
import struct
from pathlib import Path

import pytest

from pyoco_server import read_flow_yaml
from pyoco_server.testing import (
    FlowTester,
    assert_attempts,
    assert_completed,
    assert_failed,
    assert_never_started,
    assert_order,
    assert_succeeded,
    nodes_of,
)

flow = read_flow_yaml((Path(__file__).parent / "image_pipeline.yaml").read_text(), name="image_pipeline")


@pytest.mark.parametrize("count", [1, 9])
def test_every_picture_is_on_the_sheet(flow_tester: FlowTester, tmp_path: Path, count: int) -> None:
    """As many rounds as there are pictures, and the sheet after all of them."""
    result = flow_tester.run(flow, {"folder": str(tmp_path), "count": count})
    assert_completed(result)
    rounds = nodes_of(result, "shrink")
    assert len(rounds) == count
    assert_succeeded(result, *rounds)
    for node in rounds:
        assert_order(result, "draw", node, "contact_sheet")
    sheet = (tmp_path / "sheet.png").read_bytes()
    assert sheet.startswith(b"\x89PNG")
    assert struct.unpack(">II", sheet[16:24]) == (16 * count, 16)


def test_a_round_that_fails_stops_the_sheet(flow_tester: FlowTester, tmp_path: Path) -> None:
    """It is tried three times, the others once; there is no sheet with a hole in it."""
    (tmp_path / "small" / "picture-001").mkdir(parents=True)  # in the way of what the second round writes
    result = flow_tester.run(flow, {"folder": str(tmp_path), "count": 2})
    assert_failed(result, code="IsADirectoryError")
    first, second = nodes_of(result, "shrink")
    assert_attempts(result, first, 1)
    assert_attempts(result, second, 3)
    assert_never_started(result, "contact_sheet")

"""Testing with plug-ins: an installed package is a folder on the path with its description beside it.

You need this only to test without installing; with the package installed, a test is as short as any other.
"""

# ruff: noqa: S101 (assert is how tests speak)
from pathlib import Path

import pytest

from pyoco_server import FlowError, read_flow_yaml
from pyoco_server.testing import FlowTester, assert_completed

HERE = Path(__file__).parent
flow = read_flow_yaml((HERE / "flow.yaml").read_text(), name="plugins")


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what pip does: make the package importable and write down its entry points."""
    description = tmp_path / "greeting_tasks-1.0.dist-info"
    description.mkdir()
    (description / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting-tasks\nVersion: 1.0\n")
    (description / "entry_points.txt").write_text("[pyoco.tasks]\ngreeting = greeting_tasks:register_tasks\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(HERE))


@pytest.mark.usefixtures("_installed")
def test_tasks_of_a_package_are_found_by_name(flow_tester: FlowTester) -> None:
    """The flow knows nothing of the package but the names of its tasks."""
    result = flow_tester.run(flow, {"name": "Grace"})
    assert_completed(result)
    assert result.results["sign"] == "Hello, Grace! (Ada)"


def test_a_package_that_is_not_installed_is_named_at_once(flow_tester: FlowTester) -> None:
    """Before anything runs."""
    with pytest.raises(FlowError, match="no task named 'greeting_greet'"):
        flow_tester.run(flow)

import subprocess
import sys

import pytest

from pyoco_server import testing
from pyoco_server.testing import FlowTester, assert_completed
from tests.testing import flows


def test_the_fixture_gives_a_tester(flow_tester: FlowTester) -> None:
    assert_completed(flow_tester.run(flows.flaky(1, retries=1, backoff_sec=60)))


def test_the_kit_does_not_import_pytest_unless_asked_for_the_fixture() -> None:
    check = "import sys, pyoco_server.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0  # noqa: S603 our own words


def test_the_kit_has_nothing_it_does_not_list() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018
    assert all(hasattr(testing, name) for name in testing.__all__)

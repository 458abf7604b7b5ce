"""Fixtures for pytest; the only module here that needs it.

In your ``conftest.py``: ``from pyoco_server.testing import flow_tester  # noqa: F401``.
"""

from collections.abc import Iterator

import pytest

from pyoco_server.testing.tester import FlowTester


@pytest.fixture
def flow_tester() -> Iterator[FlowTester]:
    """A :class:`FlowTester` for one test, closed behind it."""
    with FlowTester() as tester:
        yield tester

"""A kit for testing flows: run them in memory, in virtual time, and check what happened.

``from pyoco_server.testing import FlowTester, assert_completed``. The fixture ``flow_tester`` is found here too; only
asking for it imports pytest.
"""

from typing import TYPE_CHECKING, Any

from pyoco_server.testing.assertions import (
    assert_attempts,
    assert_canceled,
    assert_completed,
    assert_failed,
    assert_never_started,
    assert_node_failed,
    assert_order,
    assert_progress,
    assert_succeeded,
    assert_waiting,
    events_of,
    nodes_of,
    pauses_of,
)
from pyoco_server.testing.counting_executor import CountingExecutor
from pyoco_server.testing.tester import FlowResult, FlowStuckError, FlowTester
from pyoco_server.testing.virtual_clock import VirtualClock

if TYPE_CHECKING:
    from pyoco_server.testing.pytest_fixtures import flow_tester

__all__ = [
    "CountingExecutor",
    "FlowResult",
    "FlowStuckError",
    "FlowTester",
    "VirtualClock",
    "assert_attempts",
    "assert_canceled",
    "assert_completed",
    "assert_failed",
    "assert_never_started",
    "assert_node_failed",
    "assert_order",
    "assert_progress",
    "assert_succeeded",
    "assert_waiting",
    "events_of",
    "flow_tester",
    "nodes_of",
    "pauses_of",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 what a module holds can be anything
    """Import the fixture when it is asked for, so that the kit does not need pytest otherwise."""
    if name == "flow_tester":
        from pyoco_server.testing.pytest_fixtures import flow_tester  # noqa: PLC0415

        return flow_tester
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""How to test a flow: run it, then look at how it ended, what it returned and in which order."""

# ruff: noqa: S101 (assert is how tests speak)
from examples.hello import flow

from pyoco_server.testing import FlowTester, assert_completed, assert_order


def test_hello(flow_tester: FlowTester) -> None:
    """The fixture comes from conftest.py."""
    result = flow_tester.run(flow, {"name": "Ada"})
    assert_completed(result)
    assert_order(result, "greet", "shout")
    assert result.results == {"greet": "Hello, Ada!", "shout": "HELLO, ADA!"}

"""Fixtures for all examples; put the same line into the conftest.py of your own tests."""

from pyoco_server.testing import flow_tester

__all__ = ["flow_tester"]

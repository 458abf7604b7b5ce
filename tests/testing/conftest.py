from pyoco_server.testing import flow_tester

__all__ = ["flow_tester"]

"""The log of gateway and worker: one line a message, with what is needed to find where it came from."""

from pyoco_server.logs.context import log_context
from pyoco_server.logs.reporting import log_error
from pyoco_server.logs.setup import HTTP_SERVICE, WORKER_SERVICE, configure_logging

__all__ = ["HTTP_SERVICE", "WORKER_SERVICE", "configure_logging", "log_context", "log_error"]

"""The log of gateway and worker: one line for each message, with the fields that identify its source."""

from pyoco_server.logs.reporting import log_context, log_error
from pyoco_server.logs.setup import HTTP_SERVICE, WORKER_SERVICE, configure_logging

__all__ = ["HTTP_SERVICE", "WORKER_SERVICE", "configure_logging", "log_context", "log_error"]

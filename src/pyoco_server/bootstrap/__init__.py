"""Assembles gateways and workers: the only place that knows which adapter serves which port."""

from pyoco_server.bootstrap.platform import Platform, names_of, open_platform, run_log_of, submitter
from pyoco_server.bootstrap.worker import flow_source, open_worker, worker_options

__all__ = [
    "Platform",
    "flow_source",
    "names_of",
    "open_platform",
    "open_worker",
    "run_log_of",
    "submitter",
    "worker_options",
]

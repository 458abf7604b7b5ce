"""Durable workflows: a pure event-sourced core, an engine that runs flows on it, and a platform around both.

The names in ``__all__`` are imported at their first use: a child process that runs one task, or a program that only
submits runs, imports nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyoco_server.app.runtime.context import TaskContext
    from pyoco_server.client import ApiError, AsyncClient, Client, GatewayUnreachableError, WaitTimeoutError
    from pyoco_server.config import NatsBackendConfig
    from pyoco_server.engine import Engine, RunResult
    from pyoco_server.errors import TaskInterrupted
    from pyoco_server.flows.authoring import options, wait
    from pyoco_server.flows.errors import FlowError
    from pyoco_server.flows.model import Backoff, BackoffKind, Interrupt, Isolation
    from pyoco_server.flows.yaml.document import read_flow_yaml
    from pyoco_server.http_client import PyocoHttpClient
    from pyoco_server.logs import configure_logging
    from pyoco_server.nats_worker import PyocoNatsWorker

__all__ = [
    "ApiError",
    "AsyncClient",
    "Backoff",
    "BackoffKind",
    "Client",
    "Engine",
    "FlowError",
    "GatewayUnreachableError",
    "Interrupt",
    "Isolation",
    "NatsBackendConfig",
    "PyocoHttpClient",
    "PyocoNatsWorker",
    "RunResult",
    "TaskContext",
    "TaskInterrupted",
    "WaitTimeoutError",
    "configure_logging",
    "options",
    "read_flow_yaml",
    "wait",
]

_HOMES: Final = {
    "ApiError": "pyoco_server.client",
    "AsyncClient": "pyoco_server.client",
    "Backoff": "pyoco_server.flows.model",
    "BackoffKind": "pyoco_server.flows.model",
    "Client": "pyoco_server.client",
    "Engine": "pyoco_server.engine",
    "FlowError": "pyoco_server.flows.errors",
    "GatewayUnreachableError": "pyoco_server.client",
    "Interrupt": "pyoco_server.flows.model",
    "Isolation": "pyoco_server.flows.model",
    "NatsBackendConfig": "pyoco_server.config",
    "PyocoHttpClient": "pyoco_server.http_client",
    "PyocoNatsWorker": "pyoco_server.nats_worker",
    "RunResult": "pyoco_server.engine",
    "TaskContext": "pyoco_server.app.runtime.context",
    "TaskInterrupted": "pyoco_server.errors",
    "WaitTimeoutError": "pyoco_server.client",
    "configure_logging": "pyoco_server.logs",
    "options": "pyoco_server.flows.authoring",
    "read_flow_yaml": "pyoco_server.flows.yaml.document",
    "wait": "pyoco_server.flows.authoring",
}

_REPLACED: Final = {
    "PyocoNatsClient": "submit and read runs over HTTP with pyoco_server.Client or AsyncClient",
    "ensure_resources": "gateways and workers create their streams and buckets when they start",
}
"""Names of 0.5.1 that are gone, and what to use instead."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 whatever the name stands for
    """Import the name from its module."""
    if name in _REPLACED:  # AttributeError would be replaced by "cannot import name"
        raise ImportError(f"pyoco_server.{name} of 0.5.1 is gone: {_REPLACED[name]} (docs/howto/migrate.md)")
    if name not in _HOMES:
        raise AttributeError(f"module 'pyoco_server' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return all names, imported or not."""
    return sorted([*globals(), *__all__])

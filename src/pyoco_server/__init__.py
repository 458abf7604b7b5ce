"""Durable workflows for Python."""

from pyoco_server.app.context import TaskContext
from pyoco_server.engine import Engine, RunResult
from pyoco_server.flows.authoring import options, wait
from pyoco_server.flows.model import Backoff, Isolation

__all__ = ["Backoff", "Engine", "Isolation", "RunResult", "TaskContext", "options", "wait"]

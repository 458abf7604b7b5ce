"""Which flows a worker announces in its registry record, and whether it may have certain code.

``flows`` maps each flow's name to ``{"sha256", "tasks"}``; null means that the worker's resolver cannot enumerate its
flows, or that they are too many to announce. ``flows_at`` is when that last changed, in Unix seconds.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import WorkerRecord
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.flows.definitions import sha256_of
from pyoco_server.flows.model import FlowModel, TaskStep, tasks_of
from pyoco_server.flows.plan import plan

FLOWS: Final = "flows"
FLOWS_AT: Final = "flows_at"
MOST_BYTES: Final = 32 * 1024
"""A larger announcement is not made: every heartbeat would carry it."""

Announcement = dict[str, JsonObject]


def announced(model: FlowModel, functions: Collection[str], wheels: Mapping[str, str]) -> JsonObject:
    """Return what is announced of one flow: its digest, and the names that runs may need of it."""
    made = plan(model)
    tasks = {task.name for task in tasks_of(model) if task.wait is None and (task.function or task.name) in functions}
    named = {node_id for node_id, step in made.steps.items() if not _is_called(step)}
    return {"sha256": sha256_of(made.graph, wheels), "tasks": sorted(tasks | named)}


def _is_called(step: object) -> bool:
    return isinstance(step, TaskStep) and step.task.wait is None


def bounded(flows: Announcement | None) -> Announcement | None:
    """Return the announcement, or None if it is too large to be made."""
    return flows if flows is not None and len(msgspec.json.encode(flows)) <= MOST_BYTES else None


def may_have(worker: WorkerRecord, flow_name: str, needs: Collection[str]) -> bool:
    """May the worker have these tasks of the flow, by what it announces? One that announces nothing may have any."""
    flows = worker.get(FLOWS)
    if not isinstance(flows, dict):
        return True
    flow = flows.get(flow_name)
    tasks: Any = flow.get("tasks") if isinstance(flow, dict) else None
    return isinstance(tasks, list) and set(needs) <= {name for name in tasks if isinstance(name, str)}


def announces(worker: WorkerRecord, flow_name: str, needs: Collection[str]) -> bool:
    """Does the worker say that it has them?"""
    return isinstance(worker.get(FLOWS), dict) and may_have(worker, flow_name, needs)


def announced_at(worker: WorkerRecord) -> float:
    """When the worker's announcement last changed, in Unix seconds."""
    at = worker.get(FLOWS_AT)
    return float(at) if isinstance(at, int | float) else 0.0

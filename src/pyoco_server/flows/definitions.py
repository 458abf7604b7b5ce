"""Definitions of steps in the log: NODE_CREATED holds what a node does, so that a run never needs its flow's new form.

The Start node says which parameters have defaults (``flow``), every other node what its step is (``step``, left out
where all is default). Reading never raises: what cannot be read is None, and the worker's flow may supply it.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.core.graph import CONTROL, Graph, GraphNode, NodeType, graph_to_dict
from pyoco_server.core.wire import JsonObject
from pyoco_server.flows.model import (
    Backoff,
    FlowModel,
    Step,
    Switch,
    TaskSpec,
    TaskStep,
    bodies,
    tasks_in,
    with_tasks,
)

FLOW: Final = "flow"
STEP: Final = "step"
UNWRITTEN: Final = "unwritten"

VALUE_BYTES: Final = 16 * 1024
"""A larger input is not written into the log: every run would carry it."""
FLOW_BYTES: Final = 256 * 1024
"""Definitions of one flow take no more than this; a commit must stay below the largest message."""
_DEEPEST: Final = 50
_BESIDE: Final = ("name", "outputs")
"""What a node says of its task beside the definition."""


class Definitions:
    """Writes the definitions of one flow, as far as they fit."""

    def __init__(self, model: FlowModel) -> None:
        self._left = FLOW_BYTES
        self.flow: JsonObject = {}
        if model.defaults:
            defaults = {name: value for name, value in model.defaults.items() if is_json(value)}
            self.flow["defaults"] = defaults
            self._left -= len(msgspec.json.encode(defaults))

    def of(self, step: Step) -> JsonObject:
        """Return what a node's ``extra`` says of its step; nothing if the step has only defaults."""
        written = _written(step)
        if written is None:
            return {STEP: {UNWRITTEN: True}}
        if not written:
            return {}
        self._left -= len(msgspec.json.encode(written))
        return {STEP: written if self._left >= 0 else {UNWRITTEN: True}}


def _written(step: Step) -> JsonObject | None:
    """Return the step as JSON; None if something in it besides inputs is not JSON."""
    if not _has_json_cases(step):
        return None
    fields: JsonObject = msgspec.to_builtins(with_tasks(step, _writable))
    if isinstance(step, TaskStep):
        return {name: value for name, value in fields["task"].items() if name not in _BESIDE}
    return fields


def _has_json_cases(step: Step) -> bool:
    """Can the log hold the values of all switches?"""
    cases = step.cases if isinstance(step, Switch) else ()
    inside = (each for body in bodies(step) for each in body)
    return all(is_json(case.value) for case in cases) and all(map(_has_json_cases, inside))


def _writable(task: TaskSpec) -> TaskSpec:
    """Return the task with what is not default, and without inputs that the log cannot hold."""
    left_out = tuple(name for name, value in task.inputs.items() if not is_json(value))
    return msgspec.structs.replace(
        task,
        function=None if task.function == task.name else task.function,
        backoff=msgspec.UNSET if task.backoff == Backoff() else task.backoff,
        inputs={name: value for name, value in task.inputs.items() if name not in left_out},
        unwritten=left_out,
    )


def is_json(value: object, *, max_bytes: int = VALUE_BYTES) -> bool:
    """Does JSON read back as exactly this value, of the same types, and is it small enough for the log?"""
    return _is_json(value, 0) and len(msgspec.json.encode(value)) <= max_bytes


def _is_json(value: object, depth: int) -> bool:
    if depth > _DEEPEST:
        return False
    kind = type(value)
    if kind is dict and isinstance(value, dict):
        return all(_is_text(name) and _is_json(item, depth + 1) for name, item in value.items())
    if kind is list and isinstance(value, list):
        return all(_is_json(item, depth + 1) for item in value)
    if kind is int and isinstance(value, int):
        return -(2**63) <= value < 2**64
    if kind is float and isinstance(value, float):
        return math.isfinite(value)
    return value is None or kind is bool or _is_text(value)


def _is_text(value: object) -> bool:
    if type(value) is not str:
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


# --- Reading ---------------------------------------------------------------------------------------------------------


class LoggedSteps(NamedTuple):
    """What the nodes of a graph say of their steps."""

    is_described: bool
    """Did the log's writer describe steps? Older logs name only the task of each node."""
    steps: Mapping[str, Step]
    lacking: frozenset[str]
    """Nodes that do something which their log does not say."""
    defaults: Mapping[str, Any] | None


def logged_steps(graph: Graph) -> LoggedSteps:
    """Return the steps that the nodes of a graph describe; never raises."""
    flow = graph.nodes[graph.start].extra.get(FLOW)
    is_described = isinstance(flow, dict)
    defaults = flow.get("defaults", {}) if isinstance(flow, dict) else None
    steps: dict[str, Step] = {}
    lacking: set[str] = set()
    for node_id, node in graph.nodes.items():
        if node.node_type in CONTROL:
            continue
        step = _read_step(node, is_described=is_described)
        if step is None:
            lacking.add(node_id)
        else:
            steps[node_id] = step
    return LoggedSteps(is_described, steps, frozenset(lacking), defaults if isinstance(defaults, dict) else None)


def _read_step(node: GraphNode, *, is_described: bool) -> Step | None:
    said = node.extra.get(STEP, {})
    if not isinstance(said, dict) or said.get(UNWRITTEN) is True:
        return None
    try:
        if node.node_type not in {NodeType.TASK, NodeType.WAIT}:
            block: Step = msgspec.convert(said, Step)
            return block
        if node.node_type == NodeType.WAIT and "wait" not in said:
            return None
        fields = said if is_described else {"retries": node.retries, "onFailure": _on_failure(node)}
        named = {"name": node.extra.get("task"), "outputs": node.extra.get("outputs") or []}
        return TaskStep(msgspec.convert({**fields, **named}, TaskSpec))
    except (msgspec.ValidationError, RecursionError):
        return None


def _on_failure(node: GraphNode) -> str:
    return "isolate" if node.fail_policy == "isolate" else "stop"


def is_kind_of(step: Step, node: GraphNode) -> bool:
    """May the step be what a node stands for, as far as the node's type tells?"""
    if isinstance(step, TaskStep):
        return node.node_type == (NodeType.WAIT if step.task.wait is not None else NodeType.TASK)
    return node.node_type == type(step).__name__


def supplied(step: Step, tasks: Mapping[str, TaskSpec]) -> Step:
    """Return the step with inputs that its log could not hold; tasks of the same name supply them if they have them."""
    if not any(task.unwritten for task in tasks_in(step)):
        return step

    def supply(task: TaskSpec) -> TaskSpec:
        found = tasks.get(task.name)
        if found is None or not all(name in found.inputs for name in task.unwritten):
            return task
        inputs = {**task.inputs, **{name: found.inputs[name] for name in task.unwritten}}
        return msgspec.structs.replace(task, inputs=inputs, unwritten=())

    return with_tasks(step, supply)


class _Digest:
    """The key under which a graph remembers its digest."""


def sha256_of(graph: Graph, wheels: Mapping[str, str]) -> str:
    """Return the digest of a flow's code as logs name it: over its graph with all definitions, and over the wheels."""
    known: bytes | None = graph.remembered.get(_Digest)
    if known is None:
        known = msgspec.json.encode(graph_to_dict(graph), order="deterministic")
        graph.remembered[_Digest] = known = hashlib.sha256(known).digest()
    if not wheels:
        return known.hex()
    return hashlib.sha256(known + msgspec.json.encode(wheels, order="sorted")).hexdigest()

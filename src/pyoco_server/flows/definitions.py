"""Definitions of steps in the log: NODE_CREATED records what a node does, so that a run keeps the flow it started with.

The Start node has the defaults of parameters (``flow``), every other node its step (``step``, left out if it has only
defaults). Reading never raises: what cannot be read is None, and the worker's flow may supply it.
"""

import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from pyoco_server.core.graph import CONTROL, Graph, GraphNode, NodeType, graph_to_dict
from pyoco_server.core.json_codec import JsonObject
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
from pyoco_server.values.codec import as_json, as_tagged, from_tagged
from pyoco_server.values.errors import ValueCodecError
from pyoco_server.values.tags import is_writable

_log = logging.getLogger(__name__)

FLOW: Final = "flow"
STEP: Final = "step"
UNWRITTEN: Final = "unwritten"

_DEEPEST: Final = 50
VALUE_BYTES: Final = 16 * 1024
"""A larger input is not written into the log: every run would carry it."""
FLOW_BYTES: Final = 256 * 1024
"""The limit for all definitions of one flow; a commit must stay below the largest message of NATS."""
_BESIDE: Final = ("name", "outputs")
"""Fields of a task that a node has outside of the definition."""


class Definitions:
    """Writes the definitions of one flow, up to the limit."""

    def __init__(self, model: FlowModel) -> None:
        self._left = FLOW_BYTES
        self.flow: JsonObject = {}
        if model.defaults:
            self.flow = msgspec.to_builtins(_Defaults(*_values(model.defaults)))
            self._left -= len(msgspec.json.encode(self.flow))

    def of(self, step: Step) -> JsonObject:
        """Return the definition of a step for its node's ``extra``; empty if the step has only defaults."""
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
    """Return the task without defaults, and with inputs as the log holds them."""
    inputs, tagged, unwritten = _values(task.inputs)
    return msgspec.structs.replace(
        task,
        function=None if task.function == task.name else task.function,
        backoff=msgspec.UNSET if task.backoff == Backoff() else task.backoff,
        inputs=inputs,
        tagged=tagged,
        unwritten=unwritten,
    )


def _values(given: Mapping[str, Any]) -> "LoggedValues":
    """Return values by name as the log holds them."""
    written: JsonObject = {}
    tagged: list[str] = []
    for name, value in given.items():
        if type(name) is not str or not is_writable(name):
            continue
        if is_json(value):
            written[name] = value
        elif _fits(found := as_tagged(value)):
            written[name] = found[1]
            tagged.append(name)
    return LoggedValues(written, tuple(tagged), tuple(name for name in given if name not in written))


def is_json(value: object) -> bool:
    """Is the value plain JSON that is read back unchanged, and small enough for the log?"""
    return _fits(as_json(value))


def _fits(found: tuple[bytes, Any] | None) -> TypeGuard[tuple[bytes, Any]]:
    """May the log hold the JSON? Other programs refuse JSON that is nested too deeply."""
    return found is not None and len(found[0]) <= VALUE_BYTES and _is_shallow(found[1], _DEEPEST)


def _is_shallow(data: Any, left: int) -> bool:  # noqa: ANN401 any JSON
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return left > 0 and all(_is_shallow(item, left - 1) for item in inside)


# --- Reading ---------------------------------------------------------------------------------------------------------


class LoggedValues(NamedTuple):
    """Values by name, as a log holds them."""

    values: Mapping[str, Any]
    tagged: tuple[str, ...] = ()
    """Names of values that are tagged JSON, not decoded yet."""
    unwritten: tuple[str, ...] = ()
    """Names of values that the log could not hold."""

    def read(self, others: Mapping[str, Any]) -> "LoggedValues":
        """Return all values: tagged JSON is decoded; what is unwritten or cannot be decoded is taken from ``others``.

        ``unwritten`` of the result names the values that neither has.
        """
        values, wanted = {**self.values}, [*self.unwritten]
        for name in self.tagged:
            try:
                values[name] = from_tagged(values.pop(name))
            except (ValueCodecError, KeyError) as error:
                _log.warning("'%s' cannot be read from the log: %s", name, error, extra={"action": "value_not_read"})
                wanted.append(name)
        values |= {name: others[name] for name in wanted if name in others}
        return LoggedValues(values, unwritten=tuple(name for name in wanted if name not in others))


class _Defaults(msgspec.Struct, frozen=True, omit_defaults=True):
    """The defaults of parameters, which the Start node has."""

    defaults: Mapping[str, Any] = {}
    tagged: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()


class LoggedSteps(NamedTuple):
    """The steps that the nodes of a graph describe."""

    is_described: bool
    """Does the log describe steps? Older logs name only the task of each node."""
    steps: Mapping[str, Step]
    lacking: frozenset[str]
    """Nodes whose step the log does not have."""
    defaults: LoggedValues | None


def logged_steps(graph: Graph) -> LoggedSteps:
    """Return the steps that the nodes of a graph describe; never raises."""
    flow = graph.nodes[graph.start].extra.get(FLOW)
    is_described = isinstance(flow, dict)
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
    return LoggedSteps(is_described, steps, frozenset(lacking), _read_defaults(flow))


def _read_defaults(flow: object) -> LoggedValues | None:
    try:
        said = msgspec.convert(flow, _Defaults)
    except msgspec.ValidationError:
        return None
    return LoggedValues(said.defaults, said.tagged, said.unwritten)


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
    """Does the step match the type of the node?"""
    if isinstance(step, TaskStep):
        return node.node_type == (NodeType.WAIT if step.task.wait is not None else NodeType.TASK)
    return node.node_type == type(step).__name__


def completed(step: Step, tasks: Mapping[str, TaskSpec], missing: tuple[str, ...] = ()) -> Step:
    """Return the step with all inputs of its tasks as values.

    Tagged JSON is decoded; what the log could not hold, or what cannot be decoded here, is taken from the task of the
    same name in ``tasks``. ``unwritten`` of a task names the inputs that neither has: the task cannot be called here.
    ``missing`` are defaults of parameters that neither has: then no task can be called here.
    """
    if not missing and not any(task.tagged or task.unwritten for task in tasks_in(step)):
        return step

    def complete(task: TaskSpec) -> TaskSpec:
        mine = tasks.get(task.name)
        logged = LoggedValues(task.inputs, task.tagged, task.unwritten)
        inputs, _, unwritten = logged.read({} if mine is None else mine.inputs)
        return msgspec.structs.replace(task, inputs=inputs, tagged=(), unwritten=unwritten + missing)

    return with_tasks(step, complete)


class _Digest:
    """The key of the digest in ``Graph.remembered``."""


def sha256_of(graph: Graph, wheels: Mapping[str, str]) -> str:
    """Return the digest of a flow's code for the log: of its graph with all definitions, and of the wheels."""
    known: bytes | None = graph.remembered.get(_Digest)
    if known is None:
        known = msgspec.json.encode(graph_to_dict(graph), order="deterministic")
        graph.remembered[_Digest] = known = hashlib.sha256(known).digest()
    if not wheels:
        return known.hex()
    return hashlib.sha256(known + msgspec.json.encode(wheels, order="sorted")).hexdigest()

"""The plan that a run is driven on: the graph and steps of a flow (for a new run) or of a log (for every other run).

A flow that is run a thousand times is planned once, and a graph that a thousand logs describe is read once.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyoco_server.core import Event, Graph, read_graph
from pyoco_server.core.payloads import ExecutionCreated, ExecutionStarted, NodeCreated
from pyoco_server.flows.definitions import LoggedSteps, LoggedValues, completed, is_kind_of, logged_steps
from pyoco_server.flows.model import FlowModel, Network, Step, TaskStep, tasks_of
from pyoco_server.flows.plan import FlowPlan, name_steps, plan

REMEMBERED: Final = 256
CODE: Final = "flow"
"""Under this name EXECUTION_STARTED and NODE_STARTED name the code: ``{"sha256": …}``."""


class RunPlan(NamedTuple):
    """What one run is driven on."""

    graph: Graph
    steps: Mapping[str, Step]
    """What each node does, by node."""
    lacking: frozenset[str]
    """Nodes that neither the log nor the worker's flow defines: they need a worker that has their definition."""
    defaults: Mapping[str, Any]
    """Parameters that hold unless the run is given others."""


class _Logged(NamedTuple):
    """What a log says of its run's graph."""

    graph: Graph
    said: LoggedSteps


class PlanCache:
    """The newest plan of each flow, by name; a flow that has changed is planned again.

    What is remembered is the graph, and with it the definitions that logs get. Flows that Python calls equal, but whose
    values are of different types (1 and True), have graphs of their own.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[str, tuple[FlowModel, FlowPlan]] = OrderedDict()
        self._read: OrderedDict[tuple[str, str, int], _Logged] = OrderedDict()

    def of(self, model: FlowModel) -> FlowPlan:
        """The plan of a flow."""
        found = self._made.get(model.name)
        if found is not None and _equal(found[0], model):
            self._made.move_to_end(model.name)
            return FlowPlan(found[1].graph, _steps(model))
        made = plan(model)
        self._made[model.name] = (model, made)
        if len(self._made) > REMEMBERED:
            self._made.popitem(last=False)
        return made

    def of_log(self, events: Sequence[Event], model: FlowModel | None) -> RunPlan | None:
        """Return what the log says that its run is to be driven on; None if the log has no graph yet.

        ``model`` is the worker's flow of that name. It supplies only what the log does not say: values that the log
        could not hold, and the steps of nodes in logs older than definitions, where node and kind are the same.
        """
        logged = self._logged(events)
        if logged is None:
            return None
        graph, said = logged
        if model is None:
            return RunPlan(graph, said.steps, said.lacking, said.defaults.read({}).values if said.defaults else {})
        mine = self.of(model).steps
        steps = dict(said.steps)
        wanted = said.lacking if said.is_described else graph.nodes
        steps |= {each: mine[each] for each in wanted if each in mine and is_kind_of(mine[each], graph.nodes[each])}
        tasks = {task.name: task for task in tasks_of(model)}
        defaults = LoggedValues(model.defaults) if said.defaults is None else said.defaults.read(model.defaults)
        steps = {node_id: completed(step, tasks, defaults.unwritten) for node_id, step in steps.items()}
        return RunPlan(graph, steps, said.lacking - steps.keys(), defaults.values)

    def _logged(self, events: Sequence[Event]) -> _Logged | None:
        """The graph of a log with its steps, read once for each code that logs name."""
        sha256, graph_nodes = "", 0
        for event in events:
            payload = event.payload
            if type(payload) is NodeCreated:
                graph_nodes += bool((payload.meta or {}).get("inputs"))
            elif type(payload) is ExecutionStarted:
                sha256 = named_code(payload.extra) or ""
        if not graph_nodes:
            return None
        first = events[0].payload
        graph_id = first.graph_id if isinstance(first, ExecutionCreated) else ""
        key = (graph_id, sha256, graph_nodes)
        found = self._read.get(key) if sha256 else None
        if found is None:
            read = read_graph(events)
            found = _Logged(read.graph, logged_steps(read.graph))
            if sha256 and not read.notes:
                self._read[key] = found
                if len(self._read) > REMEMBERED:
                    self._read.popitem(last=False)
        return found


def named_code(extra: Mapping[str, Any]) -> str | None:
    """The digest of the code that an event names; None if it names none."""
    said = extra.get(CODE)
    sha256 = said.get("sha256") if isinstance(said, Mapping) else None
    return sha256 if isinstance(sha256, str) and len(sha256) <= 64 else None


def _equal(one: FlowModel, other: FlowModel) -> bool:
    """Return whether both flows have the same definitions, with values of the same types."""
    if one.body is other.body and one.defaults is other.defaults:
        return True
    try:
        return one == other and repr(one) == repr(other)
    except Exception:  # noqa: BLE001 inputs may be anything, and some things (arrays) will not be compared
        return False


def _steps(model: FlowModel) -> Mapping[str, Step]:
    if isinstance(model.body, Network):
        return {task.name: TaskStep(task) for task in model.body.tasks}
    return dict(name_steps(model.body.steps))

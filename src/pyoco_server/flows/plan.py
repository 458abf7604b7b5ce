"""Makes the graph that the core runs on from a flow.

Each task of a *network* becomes a node; a Fork is added where a task has several successors, a Join where it has
several dependencies. A *program* becomes a chain of its steps; a step that is more than a task (a loop, a choice, a
parallel group) is one node, whose inside is made of nodes created while it runs (see ``app.runtime.control_flow``).

The id of a task's node is its name; ids of nodes that are added here begin with a colon, which no task's name does.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pyoco_server.core.graph import Edge, Graph, GraphNode, Losers, NodeFailPolicy, NodeType
from pyoco_server.core.graph_validation import GraphError
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import JoinPolicy
from pyoco_server.flows.definitions import FLOW, Definitions
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.model import (
    FlowModel,
    ForEach,
    Network,
    OnFailure,
    Parallel,
    Program,
    Repeat,
    Step,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Trigger,
    Until,
    check_at_most_once,
    tasks_of,
)

START, END, FORK, JOIN = ":start", ":end", ":fork", ":join"
_BLOCK_NAMES: Mapping[type[Step], str] = {
    Parallel: "parallel",
    Switch: "switch",
    Repeat: "repeat",
    ForEach: "foreach",
    Until: "until",
}


class FlowPlan(NamedTuple):
    """The graph, and for each node that does something the step it stands for."""

    graph: Graph
    steps: Mapping[str, Step]


def plan(model: FlowModel) -> FlowPlan:
    """Return the graph of a flow; FlowError if it cannot run."""
    if not (model.body.tasks if isinstance(model.body, Network) else model.body.steps):
        raise FlowError(f"flow '{model.name}' has no tasks: add one with flow >> task")
    for task in tasks_of(model):
        if task.name.startswith(":"):
            raise FlowError(
                f"flow '{model.name}': a task cannot be called '{task.name}': names that begin with ':' are reserved"
            )
        check_at_most_once(task.name, retries=task.retries, recompute=task.recompute, at_most_once=task.at_most_once)
    try:
        if isinstance(model.body, Network):
            return _plan_network(model, model.body)
        return _plan_program(model, model.body)
    except GraphError as error:
        raise FlowError(f"flow '{model.name}' cannot run: {error}") from error


def name_steps(steps: Steps, prefix: str = "") -> list[tuple[str, Step]]:
    """Return the steps with their ids: a task has its name, a block its kind; repeated ids are numbered."""
    named: list[tuple[str, Step]] = []
    taken: set[str] = {step.task.name for step in steps if isinstance(step, TaskStep)}
    given: set[str] = set()
    for step in steps:
        base = step.task.name if isinstance(step, TaskStep) else f":{_BLOCK_NAMES[type(step)]}"
        numbered, number = base, 1
        while numbered in given or (number > 1 and numbered in taken):
            number += 1
            numbered = f"{base}:{number}"
        given.add(numbered)
        named.append((prefix + numbered, step))
    return named


def task_node(node_id: str, task: TaskSpec, *, stops: bool = False) -> GraphNode:
    """Return the node of a task; with ``stops`` its failure fails the flow, whatever its policy is."""
    isolated = task.on_failure is OnFailure.ISOLATE and not stops
    return GraphNode(
        node_id=node_id,
        node_type=NodeType.WAIT if task.wait else NodeType.TASK,
        retries=task.retries,
        fail_policy=NodeFailPolicy.ISOLATE if isolated else NodeFailPolicy.STOP,
        extra={"task": task.name, "outputs": list(task.outputs)},
    )


def block_type(step: Step) -> str:
    """Return the node type of a step that is more than a task."""
    return type(step).__name__


def _plan_program(model: FlowModel, program: Program) -> FlowPlan:
    named, definitions = name_steps(program.steps), Definitions(model)
    nodes = [GraphNode(node_id=START, node_type=NodeType.START, extra={FLOW: definitions.flow})]
    for node_id, step in named:
        defined = definitions.of(step)
        if isinstance(step, TaskStep):
            # In a program every failure of a task is a failure of the run.
            nodes.append(_defined(task_node(node_id, step.task, stops=True), defined))
        else:
            nodes.append(GraphNode(node_id=node_id, node_type=block_type(step), extra=defined))
    nodes.append(GraphNode(node_id=END, node_type=NodeType.SUCCESS))
    edges = [Edge(one.node_id, other.node_id) for one, other in itertools.pairwise(nodes)]
    return FlowPlan(Graph(model.name, nodes, edges), dict(named))


def _defined(node: GraphNode, definition: JsonObject) -> GraphNode:
    return msgspec.structs.replace(node, extra=node.extra | definition) if definition else node


def _plan_network(model: FlowModel, network: Network) -> FlowPlan:
    layout, definitions = _Layout(), Definitions(model)
    layout.add(GraphNode(node_id=START, node_type=NodeType.START, extra={FLOW: definitions.flow}))
    followers: dict[str, list[str]] = {task.name: [] for task in network.tasks}
    for task in network.tasks:
        layout.add(_defined(task_node(task.name, task), definitions.of(TaskStep(task))))
        for dependency in network.depends_on[task.name]:
            followers[dependency].append(task.name)
    roots = [task.name for task in network.tasks if not network.depends_on[task.name]]
    entries = {task.name: layout.entry(task, network.depends_on[task.name]) for task in network.tasks}
    layout.open(START, [entries[root] for root in roots])
    leaves = [task.name for task in network.tasks if not followers[task.name]]
    end = layout.end(leaves)
    for task in network.tasks:
        layout.open(task.name, [entries[follower] for follower in followers[task.name]] or [end])
    return FlowPlan(
        Graph(model.name, layout.nodes, layout.edges), {task.name: TaskStep(task) for task in network.tasks}
    )


class _Layout:
    """Nodes and edges of a graph in the making."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.edges: list[Edge] = []

    def add(self, node: GraphNode) -> str:
        self.nodes.append(node)
        return node.node_id

    def entry(self, task: TaskSpec, dependencies: Iterable[str]) -> str:
        """Return the target of edges to a task: the task, or the join before it."""
        if len(tuple(dependencies)) < 2:
            return task.name
        policy = JoinPolicy.ANY_SUCCESS if task.trigger is Trigger.ANY else JoinPolicy.ALL_SUCCESS
        join = GraphNode(node_id=f"{JOIN}:{task.name}", node_type=NodeType.JOIN, policy=policy, losers=Losers.LEAVE)
        self.edges.append(Edge(self.add(join), task.name))
        return join.node_id

    def open(self, source: str, targets: list[str]) -> None:
        """Add edges from a node to all that follow it."""
        if len(targets) > 1:
            fork = self.add(GraphNode(node_id=f"{FORK}:{source}", node_type=NodeType.FORK))
            self.edges.append(Edge(source, fork))
            source = fork
        self.edges += [Edge(source, target) for target in targets]

    def end(self, leaves: list[str]) -> str:
        """Return the target of the last tasks: the end, or a join before it that waits for all of them."""
        self.add(GraphNode(node_id=END, node_type=NodeType.SUCCESS))
        if len(leaves) < 2:
            return END
        join = self.add(GraphNode(node_id=JOIN, node_type=NodeType.JOIN, policy=JoinPolicy.ALL_DONE))
        self.edges.append(Edge(join, END))
        return join

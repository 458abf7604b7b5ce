"""The graph of an execution, from its log alone: NODE_CREATED describes every node and its outgoing edges.

So commands, resumes and deadlines can be handled without the flow's code. A log is a record, so it cannot be refused:
reading one does not raise, whatever program wrote it. What is inconsistent is left out of the graph and noted.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from pyoco_server.core.events import Event
from pyoco_server.core.graph import Edge, Graph, GraphNode, NodeType
from pyoco_server.core.graph_validation import GraphError, GraphProblem
from pyoco_server.core.json_codec import DecodeError, read_extensible
from pyoco_server.core.payloads import ExecutionCreated, NodeCreated, NodeMeta, place_of

_STAND_IN: Final = (
    GraphNode(node_id=":start", node_type=NodeType.START),
    GraphNode(node_id=":end", node_type=NodeType.SUCCESS),
)
_OPTIONS: Final = frozenset({GraphProblem.BAD_JOIN_POLICY, GraphProblem.MISPLACED_OPTION})
_MENDED: Final = _OPTIONS | {GraphProblem.START_HAS_INPUTS, GraphProblem.END_HAS_OUTPUTS}
"""Problems that can be corrected without leaving out a node; they are corrected first."""
_NOTES: Final = {
    GraphProblem.DUPLICATE_EDGE: "the log has two edges between node '{}' and the same node; the second is left out",
    GraphProblem.NO_START: "the log has no node of type Start, so no node is part of the graph",
    GraphProblem.SEVERAL_STARTS: "node '{}' is a second Start and is left out of the graph",
    GraphProblem.START_HAS_INPUTS: "an edge leads to the Start node '{}'; it is left out of the graph",
    GraphProblem.END_HAS_OUTPUTS: "edges leave the end node '{}'; they are left out of the graph",
    GraphProblem.CYCLE: "node '{}' is part of a cycle and is left out of the graph",
    GraphProblem.UNREACHABLE_NODE: "node '{}' cannot be reached from Start and is left out of the graph",
    GraphProblem.NO_PATH_TO_END: "no path leads from node '{}' to an end; it is left out of the graph",
    GraphProblem.NO_WAY_ON_SUCCESS: "no edge leaves node '{}' on success; it is left out of the graph",
    GraphProblem.JOIN_WITHOUT_BRANCHES: "no edge leads to the Join '{}'; it is left out of the graph",
    GraphProblem.BAD_JOIN_POLICY: "the join rule of node '{}' is not valid; the default rule is used",
    GraphProblem.MISPLACED_OPTION: "node '{}' has an option that its type does not have; it is ignored",
}


class LoggedGraph(NamedTuple):
    """The structure of an execution according to its log."""

    graph: Graph
    """The part that is consistent; the execution runs on it."""
    notes: list[str]
    """One sentence with a node id for each inconsistency; empty for every log that this package writes."""
    left_out: list[GraphNode]
    """Nodes that the log has with a place, and the graph does not have."""


_LARGEST_SHARED: Final = 32_768
"""Bytes of JSON up to which a graph is kept for other executions."""
_NODES: Final = msgspec.json.Decoder(list[NodeCreated])


def graph_from_log(events: Iterable[Event]) -> Graph:
    """Return the graph that the execution runs on; never raises. See :func:`read_graph`.

    Executions whose logs describe the same nodes share one graph, so that reading many runs of one flow costs one
    validation. Their JSON must be the same: in Python, 1, 1.0 and True are equal.
    """
    graph_id, nodes = _structure(events)
    described = msgspec.json.encode(nodes)
    return _read(graph_id, nodes).graph if len(described) > _LARGEST_SHARED else _shared_graph(graph_id, described)


@lru_cache(maxsize=64)
def _shared_graph(graph_id: str, described: bytes) -> Graph:
    return _read(graph_id, _NODES.decode(described)).graph


def read_graph(events: Iterable[Event]) -> LoggedGraph:
    """Return the graph that the execution runs on, and every inconsistency of the log; never raises.

    An execution without nodes gets a graph of a start and an end: enough to cancel it. Nodes that a block created while
    the execution ran are not part of the graph.
    """
    return _read(*_structure(events))


def _structure(events: Iterable[Event]) -> tuple[str, list[NodeCreated]]:
    """Return the id of the graph, and every event that describes a node."""
    graph_id, nodes = "", list[NodeCreated]()
    for event in events:
        match event.payload:
            case ExecutionCreated(graph_id=given):
                graph_id = graph_id or given
            case NodeCreated() as created:
                nodes.append(created)
            case _:  # no other event describes the structure
                pass
    return graph_id, nodes


def _read(graph_id: str, nodes: Iterable[NodeCreated]) -> LoggedGraph:
    reader = _LogGraphReader()
    for created in nodes:
        if created.node_id not in reader.nodes:
            reader.add(created)
    return reader.built(graph_id)


class _LogGraphReader:
    """Collects nodes and edges, and drops what is inconsistent until the rest is a valid graph."""

    def __init__(self) -> None:
        self.nodes: dict[str, GraphNode] = {}
        self._edges: list[Edge] = []
        self._notes: list[str] = []

    def add(self, created: NodeCreated) -> None:
        """Add a node with its outgoing edges, if it has a place in the graph."""
        node_id, node_type = created.node_id, created.node_type
        place = place_of(created.meta) or NodeMeta()
        if not place.inputs and node_type != NodeType.START:
            return
        try:
            node = read_extensible({**place.node, "nodeId": node_id, "nodeType": node_type}, GraphNode, at="$")
        except DecodeError:
            node = GraphNode(node_id=node_id, node_type=node_type)
            self._notes.append(f"the options of node '{node_id}' cannot be read; defaults are used")
        self.nodes[node_id] = node
        self._edges += [Edge(node_id, successor.to, successor.on) for successor in place.edges]

    def built(self, graph_id: str) -> LoggedGraph:
        """Return the graph. Every round drops something, so the loop ends."""
        everything = dict(self.nodes)
        while self.nodes:
            self._drop_loose_edges()
            try:
                graph = Graph(graph_id, self.nodes.values(), self._edges)
            except GraphError as error:
                mended = [finding for finding in error.findings if finding.problem in _MENDED]
                for finding in mended or error.findings:
                    self._drop(finding.problem, finding.node_id)
            else:
                left_out = [node for node_id, node in everything.items() if node_id not in self.nodes]
                return LoggedGraph(graph, self._notes, left_out)
        stand_in = Graph(graph_id, _STAND_IN, [Edge(":start", ":end")])
        return LoggedGraph(stand_in, self._notes, [*everything.values()])

    def _drop_loose_edges(self) -> None:
        """Drop edges from and to nodes that are not in the graph; note those to a missing node."""
        kept = {}
        for edge in self._edges:
            if edge.source not in self.nodes:
                continue
            if edge.target not in self.nodes:
                self._note(f"the edge from node '{edge.source}' leads to '{edge.target}', which is not in the graph")
            elif (edge.source, edge.target) in kept:
                self._note(_NOTES[GraphProblem.DUPLICATE_EDGE].format(edge.source))
            else:
                kept[edge.source, edge.target] = edge
        self._edges = [*kept.values()]

    def _drop(self, problem: GraphProblem, node_id: str | None) -> None:
        """Drop what causes one problem."""
        self._note(_NOTES[problem].format(node_id))
        if node_id is None:
            self.nodes.clear()
        elif problem in _OPTIONS:
            node = self.nodes[node_id]
            self.nodes[node_id] = GraphNode(node_id=node_id, node_type=node.node_type, extra=node.extra)
        elif problem is GraphProblem.START_HAS_INPUTS:
            self._edges = [edge for edge in self._edges if edge.target != node_id]
        elif problem is GraphProblem.END_HAS_OUTPUTS:
            self._edges = [edge for edge in self._edges if edge.source != node_id]
        else:
            self.nodes.pop(node_id, None)

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

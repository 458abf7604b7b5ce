"""The graph of an execution, from its log alone: NODE_CREATED tells every node and where its edges lead.

So whoever handles a command need not have the flow's code: a cancel, a resume or a deadline can be dealt with anywhere.
"""

from collections.abc import Iterable
from typing import Final

from pyoco_server.core.events import Event
from pyoco_server.core.graph import Edge, Graph, GraphNode, NodeType
from pyoco_server.core.payloads import ExecutionCreated, NodeCreated, NodeMeta, place_of
from pyoco_server.core.wire import read_extensible

_STAND_IN: Final = (
    GraphNode(node_id=":start", node_type=NodeType.START),
    GraphNode(node_id=":end", node_type=NodeType.SUCCESS),
)


def graph_from_log(events: Iterable[Event]) -> Graph:
    """The graph the execution runs on.

    An execution that has no nodes yet gets a graph of nothing but a beginning and an end: enough to cancel it. Nodes
    made while the execution runs belong to whoever made them and are not part of the graph.
    """
    graph_id = ""
    nodes: dict[str, GraphNode] = {}
    edges: list[Edge] = []
    for event in events:
        match event.payload:
            case ExecutionCreated(graph_id=given):
                graph_id = graph_id or given
            case NodeCreated(node_id=node_id, node_type=node_type, meta=meta) if node_id not in nodes:
                place = place_of(meta) or NodeMeta()
                if place.inputs or node_type == NodeType.START:
                    fields = {**place.node, "nodeId": node_id, "nodeType": node_type}
                    nodes[node_id] = read_extensible(fields, GraphNode, at="$")
                    edges += [Edge(node_id, successor.to, successor.on) for successor in place.edges]
            case _:  # nothing else tells the structure
                pass
    if not nodes:
        return Graph(graph_id, _STAND_IN, [Edge(":start", ":end")])
    return Graph(graph_id, nodes.values(), edges)

"""Nodes that do not know their place.

NODE_CREATED may come from somebody who records no more than a node's id and type. The orchestrator then puts each node
in its place itself, from the graph, before it goes to work. A log this package wrote needs none of this.
"""

import msgspec

from pyoco_server.core.graph import Graph
from pyoco_server.core.state import ExecutionState
from pyoco_server.core.tallies import recount


def is_situated(graph: Graph, state: ExecutionState) -> bool:
    """Do all nodes of the graph exist, each in its place? A count tells: only a graph gives out places."""
    return state.placed >= len(graph.nodes)


def situate(graph: Graph, state: ExecutionState) -> ExecutionState:
    """Return the state with every node of the graph in its place; the same one if they are there already."""
    if not state.nodes or is_situated(graph, state):
        return state
    nodes = state.nodes.mutate()
    for node_id, node in state.nodes.items():
        if node_id in graph.nodes:
            nodes[node_id] = node.placed(graph.place(node_id))
    return recount(msgspec.structs.replace(state, nodes=nodes.finish()))

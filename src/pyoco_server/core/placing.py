"""Nodes that do not know their place.

NODE_CREATED may come from somebody who records no more than a node's id and type. The orchestrator then puts each node
in its place itself, from the graph, before it goes to work. A log this package wrote needs none of this.
"""

import msgspec

from pyoco_server.core.graph import Graph
from pyoco_server.core.joins import Tally
from pyoco_server.core.state import ExecutionState, NodeState


def situate(graph: Graph, state: ExecutionState) -> ExecutionState:
    """Return the state with every node of the graph in its place; the same one if they are there already.

    One look at the start tells: it always leads somewhere, so if it was recorded with its place it has edges.
    """
    start = state.nodes.get(graph.start)
    if not state.nodes or (start is not None and start.edges):
        return state
    nodes = state.nodes.mutate()
    for node_id, node in state.nodes.items():
        if node_id in graph.nodes:
            place = graph.place(node_id)
            nodes[node_id] = msgspec.structs.replace(
                node, edges=place.edges, inputs=place.inputs, retries=place.retries, isolated=place.isolated
            )
    return _tallied(msgspec.structs.replace(state, nodes=nodes.finish()))


def _tallied(state: ExecutionState) -> ExecutionState:
    tallies = state.tallies.mutate()
    for node in state.nodes.values():
        for edge in node.edges:
            fate, target = node.fate(edge.on), state.nodes.get(edge.to)
            if fate is not None and (target is None or target.is_tallied):
                tallies[edge.to] = (tallies.get(edge.to) or _empty(target)).plus(fate)
    return msgspec.structs.replace(state, tallies=tallies.finish())


def _empty(target: NodeState | None) -> Tally:
    return Tally(target.inputs if target else 0)

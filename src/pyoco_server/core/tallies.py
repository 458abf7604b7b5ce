"""Keeping count of the edges that lead to where branches meet."""

import msgspec
from immutables import Map

from pyoco_server.core.joins import Tally
from pyoco_server.core.state import ExecutionState, NodeState


def settle_edges(state: ExecutionState, old: NodeState, new: NodeState) -> Map[str, Tally]:
    """Settle a node's outgoing edges with those who wait for several of them.

    A rank may still turn one terminal status into a stronger one, so an edge already settled is settled anew.
    """
    tallies = state.tallies
    for edge in new.edges:
        if not edge.meets:
            continue
        tally = tallies.get(edge.to) or _empty(state, edge.to)
        for fate, change in ((old.fate(edge.on), -1), (new.fate(edge.on), 1)):
            if fate is not None:
                tally = tally.plus(fate, change)
        tallies = tallies.set(edge.to, tally)
    return tallies


def _empty(state: ExecutionState, node_id: str) -> Tally:
    target = state.nodes.get(node_id)
    return Tally(target.inputs if target else 0)


def recount(state: ExecutionState) -> ExecutionState:
    """The state with its tallies counted anew from its nodes."""
    counted = msgspec.structs.replace(state, tallies=Map())
    for node in state.nodes.values():
        if node.is_terminal and node.edges:
            untouched = NodeState(node_id=node.node_id, node_type=node.node_type)
            counted = msgspec.structs.replace(counted, tallies=settle_edges(counted, untouched, node))
    return counted

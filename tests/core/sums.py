"""The running sums of a state, counted the slow way."""

from collections import Counter

from pyoco_server.core import ExecutionState
from pyoco_server.core.joins import Tally
from pyoco_server.core.state import Counts


def counted(state: ExecutionState) -> Counts:
    """How many nodes are in which status."""
    found = Counter(node.status.value.lower() for node in state.nodes.values())
    return Counts(**found)


def tallied(state: ExecutionState) -> dict[str, Tally]:
    """How the edges into every node that waits for several, or is a Join, were settled; untouched ones left out."""
    found: dict[str, Tally] = {}
    for node in state.nodes.values():
        for edge in node.edges:
            target = state.nodes.get(edge.to)
            fate = node.fate(edge.on)
            if target is None or fate is None or (target.inputs < 2 and target.node_type != "Join"):
                continue
            found[edge.to] = found.get(edge.to, Tally(target.inputs)).plus(fate)
    return found

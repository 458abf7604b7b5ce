"""Folding many events at once: the node map is changed in place, since nobody sees the states in between."""

from collections.abc import ItemsView
from typing import cast

from immutables import Map, MapMutation

from pyoco_server.core.state import NodeState

FEW: int = 16
"""Up to so many events it is not worth the trouble."""


class ScratchNodes:
    """Looks like the persistent map as far as the reducer can tell, but keeps no past."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Map[str, NodeState]) -> None:
        self._nodes: MapMutation[str, NodeState] = nodes.mutate()

    def get(self, node_id: str) -> NodeState | None:
        """The node, if there is one."""
        return self._nodes.get(node_id)

    def set(self, node_id: str, node: NodeState) -> "ScratchNodes":
        """Put a node."""
        self._nodes[node_id] = node
        return self

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def items(self) -> ItemsView[str, NodeState]:
        """All nodes as they are now."""
        return cast("ItemsView[str, NodeState]", self._settle().items())

    def mutate(self) -> MapMutation[str, NodeState]:
        """A copy to change, as of now."""
        return self._settle().mutate()

    def finish(self) -> Map[str, NodeState]:
        """The persistent map of what there is now."""
        return self._nodes.finish()

    def _settle(self) -> Map[str, NodeState]:
        settled = self._nodes.finish()
        self._nodes = settled.mutate()
        return settled


def scratch(nodes: Map[str, NodeState]) -> Map[str, NodeState]:
    """A map to fold into."""
    return cast("Map[str, NodeState]", ScratchNodes(nodes))


def finished(nodes: Map[str, NodeState]) -> Map[str, NodeState]:
    """The persistent map, whichever this is."""
    held: object = nodes
    return held.finish() if isinstance(held, ScratchNodes) else nodes

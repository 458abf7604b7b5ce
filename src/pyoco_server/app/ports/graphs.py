"""Graphs registered by name, for executions that clients drive."""

from typing import Protocol


class GraphRegistry(Protocol):
    """Stores encoded graphs by their ids."""

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if a different graph has the id already."""
        ...

    async def get(self, graph_id: str) -> bytes | None:
        """Return the graph registered under the id."""
        ...

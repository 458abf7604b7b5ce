"""Graphs registered by name, for executions that are driven from outside."""

from typing import Protocol


class GraphRegistry(Protocol):
    """The encoded graph by its id."""

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if another one has the id already (the same one again is fine)."""
        ...

    async def get(self, graph_id: str) -> bytes | None:
        """The graph registered under the id."""
        ...

"""Registered graphs in memory."""

from pyoco_server.adapters.jetstream.names import bucket_key


class MemoryGraphRegistry:
    """Graphs by id; one that is registered does not change."""

    def __init__(self) -> None:
        self._graphs: dict[str, bytes] = {}

    async def put(self, graph_id: str, encoded: bytes) -> bool:
        """Register a graph; False if another one has the id already."""
        return self._graphs.setdefault(bucket_key(graph_id, field="graphId"), bytes(encoded)) == encoded

    async def get(self, graph_id: str) -> bytes | None:
        """The graph registered under the id."""
        return self._graphs.get(bucket_key(graph_id, field="graphId"))

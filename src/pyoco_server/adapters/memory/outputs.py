"""Large outputs in memory."""

from pyoco_server.adapters.jetstream.names import object_name
from pyoco_server.errors import InvalidInputError


class MemoryOutputStore:
    """Bytes by name."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    async def put(self, name: str, data: bytes) -> None:
        """Keep ``data`` under ``name``; InvalidInputError if something else is kept under it."""
        if self._kept.setdefault(object_name(name), bytes(data)) != data:
            raise InvalidInputError(f"the name {name!r:.80} cannot be used: something else is kept under it")

    async def get(self, name: str) -> bytes | None:
        """What is kept under ``name``."""
        return self._kept.get(object_name(name))

    async def delete(self, name: str) -> None:
        """Forget it."""
        self._kept.pop(object_name(name), None)

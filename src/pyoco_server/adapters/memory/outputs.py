"""Large outputs in memory."""

from collections.abc import AsyncIterator
from typing import Final

from pyoco_server.adapters.jetstream.names import object_name
from pyoco_server.errors import InvalidInputError

_PIECE_BYTES: Final = 256 * 1024


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

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the bytes kept under ``name``."""
        data = self._kept.get(object_name(name), b"")
        for place in range(0, len(data), _PIECE_BYTES):
            yield data[place : place + _PIECE_BYTES]

    async def delete(self, name: str) -> None:
        """Forget it."""
        self._kept.pop(object_name(name), None)

"""Large outputs: results that would burden the log are kept beside it and referred to."""

from collections.abc import AsyncIterator
from typing import Protocol


class OutputPieces(Protocol):
    """Reads stored outputs piece by piece; all that a process needs which only passes them on."""

    def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the bytes kept under ``name``, in order; none if there is nothing.

        The caller compares their digest: pieces can be missing in a damaged store. InvalidInputError if nothing can be
        kept under ``name``.
        """
        ...


class OutputStore(Protocol):
    """Bytes by name. A name is written once; what it holds never changes."""

    async def put(self, name: str, data: bytes) -> None:
        """Keep ``data`` under ``name``; durable when this returns."""
        ...

    async def get(self, name: str) -> bytes | None:
        """What is kept under ``name``; None if nothing is (never a part of it)."""
        ...

    async def delete(self, name: str) -> None:
        """Forget it; nothing happens if there is nothing."""
        ...

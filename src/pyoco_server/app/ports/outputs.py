"""Large outputs: results that are too large for the log are stored beside it; the log refers to them."""

from collections.abc import AsyncIterator
from typing import Protocol


class OutputPieces(Protocol):
    """Reads stored outputs piece by piece, for processes that only pass them on."""

    def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the bytes stored under ``name``, in order; none if there is nothing.

        The caller must compare the digest: pieces can be missing in a damaged store. InvalidInputError if ``name``
        cannot be a name.
        """
        ...


class OutputStore(Protocol):
    """Bytes by name. A name is written once; what it holds never changes."""

    async def put(self, name: str, data: bytes) -> None:
        """Store ``data`` under ``name``; durable when this returns."""
        ...

    async def get(self, name: str) -> bytes | None:
        """Return the bytes stored under ``name``, always whole; None if there are none."""
        ...

    async def delete(self, name: str) -> None:
        """Remove the bytes stored under ``name``, if there are any."""
        ...


class OutputCopies(OutputStore, OutputPieces, Protocol):
    """Reads stored outputs piece by piece, and copies them from one run to another."""

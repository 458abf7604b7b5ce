"""Snapshots in memory."""

from typing import Final

from pyoco_server.app.ports import StoredSnapshot, TooLargeError, position_of

MAX_BODY_BYTES: Final = 1_048_576
"""What a server takes by default."""


class MemorySnapshots:
    """The newest snapshot of each run; revisions count all writes."""

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._stored: dict[str, StoredSnapshot] = {}
        self._max_body_bytes = max_body_bytes
        self._last_revision = 0

    async def write(self, run_id: str, body: bytes, *, position: int, revision: int | None = None) -> int | None:  # noqa: ARG002 a look costs nothing here
        """Store a snapshot unless one of a newer position is there."""
        if len(body) > self._max_body_bytes:
            raise TooLargeError(f"a snapshot of {len(body)} bytes is too large; at most {self._max_body_bytes} will do")
        stored = self._stored.get(run_id)
        if stored is not None and stored.position > position:
            return None
        self._last_revision += 1
        self._stored[run_id] = StoredSnapshot(run_id, bytes(body), position_of(body), self._last_revision)
        return self._last_revision

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """The newest snapshot."""
        return self._stored.get(run_id)

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot."""
        if self._stored.pop(run_id, None) is not None:
            self._last_revision += 1

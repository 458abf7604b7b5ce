"""Snapshots: how each run stands, for those who only want to look. Derived from the log."""

from typing import Final, NamedTuple, Protocol

import msgspec


class StoredSnapshot(NamedTuple):
    """A snapshot as it is stored."""

    run_id: str
    body: bytes
    position: int
    """Where the run's log ended when the snapshot was taken: the body's ``log_position``, 0 if it has none."""
    revision: int
    """Grows with every write."""


class Snapshots(Protocol):
    """One snapshot a run. The body is a JSON object with the run's ``log_position`` among its fields."""

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        """Store a snapshot unless one of a newer position is there; return its revision, or None if it was refused.

        ``revision`` is what the writer believes is stored (0: nothing); it saves a look when it is right, and costs
        one when it is wrong. Equal positions: the later write wins. UnavailableError: unknown. TooLargeError: refused.
        What is not urgent is certain to be durable only when :meth:`sync` returns.
        """
        ...

    async def sync(self) -> None:
        """Return when all that is stored is durable, whoever wrote it; UnavailableError if nobody knows."""
        ...

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """The newest snapshot; None if there is none."""
        ...

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot; nothing happens if there is none."""
        ...


class _Head(msgspec.Struct):
    log_position: int = 0


_HEAD: Final = msgspec.json.Decoder(_Head)


def position_of(body: bytes) -> int:
    """The ``log_position`` of a snapshot; 0 if it has none, as one that somebody else wrote."""
    try:
        return _HEAD.decode(body).log_position
    except msgspec.DecodeError:
        return 0

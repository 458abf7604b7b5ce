"""Snapshots: the state of each run as one document, derived from the log.

Other programs write into the same bucket (gateways and workers of the specification's appendices E and F). What such a
snapshot means for a run is decided in :mod:`pyoco_server.app.snapshots.foreign`. This port only recognises it, and
refuses to overwrite it for a writer that has not read it.
"""

from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from pyoco_server.errors import PyocoServerError

LOG_STATUS: Final = "log_status"
"""The field of a snapshot that repeats its status as this package wrote it. A program that changes a snapshot and keeps
the fields it does not know leaves this one behind, so the change shows."""


class StoredSnapshot(NamedTuple):
    """A snapshot as it is stored."""

    run_id: str
    body: bytes
    position: int
    """Where the run's log ended when the snapshot was taken: the body's ``log_position``, 0 if it has none."""
    revision: int
    """Grows with every write."""


class ForeignSnapshotError(PyocoServerError):
    """The snapshot was not written: another program wrote ``stored`` since the writer last read it."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0106"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0106"

    def __init__(self, stored: StoredSnapshot) -> None:
        super().__init__(f"another program wrote the snapshot of '{stored.run_id}'; read it before it is replaced")
        self.stored = stored


class SnapshotReader(Protocol):
    """One snapshot for each run. The body is a JSON object with the run's ``log_position`` among its fields."""

    async def read(self, run_id: str) -> StoredSnapshot | None:
        """Return the newest snapshot; None if there is none."""
        ...

    async def sync(self) -> None:
        """Return when all stored snapshots are durable, those of every writer; UnavailableError: unknown."""
        ...


class Snapshots(SnapshotReader, Protocol):
    """Snapshots as their writer uses them (:mod:`pyoco_server.app.snapshots.writer`); all other code reads them."""

    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        """Store a snapshot unless one of a newer position is there; return its revision, or None if it was refused.

        ``revision`` is what the writer believes is stored (0: nothing); it saves a read when it is right, and costs
        one when it is wrong. Revision 0 is also refused after :meth:`forbid`. Equal positions: the later write wins.
        UnavailableError: unknown. TooLargeError: refused.
        A write that is not urgent is durable only when :meth:`sync` has returned. ForeignSnapshotError: another program
        wrote what is stored, and ``revision`` is not its revision.
        """
        ...

    async def forbid(self, run_id: str) -> bool:
        """Refuse first writes (revision 0) from now on, of all processes; False if there is a snapshot.

        For runs that never had a snapshot. UnavailableError: unknown; call it again.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Remove a run's snapshot; nothing happens if there is none."""
        ...


class SnapshotHead(msgspec.Struct):
    """The fields that say which program wrote a snapshot, and where the run's log ended."""

    log_position: int = 0
    log_status: Any = None
    status: Any = None
    cancel_requested_at: Any = None

    @property
    def is_foreign(self) -> bool:
        """Whether another program wrote the snapshot, or changed one of ours."""
        if self.log_position == 0:
            return True
        if self.log_status is None:  # written by a version of this package that did not repeat the status
            return False
        is_cancel_added = self.cancel_requested_at is not None and self.log_status in _NOT_CANCELLED
        return self.status != self.log_status or is_cancel_added


_NOT_CANCELLED: Final = ("PENDING", "RUNNING")
_UNREADABLE: Final = SnapshotHead()
_HEAD: Final = msgspec.json.Decoder(SnapshotHead)


def head_of(body: bytes) -> SnapshotHead:
    """Return the head of a snapshot; a foreign one's if the body is not a snapshot at all."""
    try:
        return _HEAD.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNREADABLE


def position_of(body: bytes) -> int:
    """Return the ``log_position`` of a snapshot; 0 if it has none because another program wrote it."""
    return head_of(body).log_position

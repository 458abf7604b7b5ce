"""The registry of workers: who is there, and what they are doing."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

WorkerRecord = dict[str, Any]
"""A worker's entry, a JSON object with ``worker_id`` and the other fields of the specification."""


class WorkerRegistry(Protocol):
    """One record a worker; compare-and-set, since the worker and an operator write to the same one."""

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store what ``change`` makes of the current record (None: there is none) and return it.

        ``change`` may be asked again when somebody else was quicker; if it returns None, nothing is written and None
        is returned.
        """
        ...

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """A worker's record, if it has one."""
        ...

    async def all(self) -> Sequence[WorkerRecord]:
        """All records, by worker id."""
        ...

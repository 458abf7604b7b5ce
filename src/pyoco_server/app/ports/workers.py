"""Workers: a registry of what each does, and requests by which a process shows that it is alive."""

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Any, Protocol

from pyoco_server.app.ports.event_log import Unsubscribe

WorkerRecord = dict[str, Any]
"""A worker's entry, a JSON object with ``worker_id`` and the other fields of the specification."""


class WorkerRegistry(Protocol):
    """One record for each worker, written by compare-and-set: the worker and an operator write the same one."""

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store what ``change`` makes of the current record (None: there is none) and return it.

        ``change`` is called again when another process wrote first. If it returns None, nothing is written and None is
        returned.
        """
        ...

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """Return a worker's record, if it has one."""
        ...

    async def all(self) -> Sequence[WorkerRecord]:
        """Return all records, ordered by worker id."""
        ...


@unique
class Sign(Enum):
    """The result of asking a worker process whether it is alive."""

    ANSWERED = "answered"
    DISCONNECTED = "disconnected"
    """The server answers that the process has no connection any more."""
    UNKNOWN = "unknown"
    """No answer in time. The process may be paused or the network broken: that proves nothing."""


class Liveness(Protocol):
    """Asks worker processes whether they are alive. A process is addressed by its instance id."""

    @property
    def outages(self) -> int:
        """Grows whenever our own connection is lost: then workers may be disconnected for the same reason."""
        ...

    async def subscribe(self, on_record: Callable[[WorkerRecord], None]) -> Unsubscribe:
        """Call ``on_record`` with records as workers write them; every worker writes its own at intervals.

        A hint: the write may have been refused. Called on the event loop; must be quick and must not raise.
        """
        ...

    async def ask(self, instance_id: str) -> Sign:
        """Ask a process whether it is alive; returns within about a second."""
        ...

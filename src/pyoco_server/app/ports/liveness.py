"""Which workers live: who is there is told by the registry, whether somebody still is by asking them."""

from collections.abc import Callable
from enum import Enum, unique
from typing import Protocol

from pyoco_server.app.ports.event_log import Unsubscribe
from pyoco_server.app.ports.workers import WorkerRecord


@unique
class Sign(Enum):
    """What came of asking a worker process whether it is there."""

    ANSWERED = "answered"
    NOBODY = "nobody"
    """The server says that nobody listens: the process has no connection any more."""
    UNKNOWN = "unknown"
    """No answer in time. The process may stand still, or the way to it may be broken: that proves nothing."""


class Liveness(Protocol):
    """Asks worker processes for a sign of life. A process is known by its instance id."""

    @property
    def outages(self) -> int:
        """Grows whenever our own connection was lost: then others may be away for the same reason."""
        ...

    async def subscribe(self, on_record: Callable[[WorkerRecord], None]) -> Unsubscribe:
        """Be told of entries of workers as they are written; every worker writes its own now and then.

        A hint: an entry may have been refused. Called on the event loop; must be quick and must not raise.
        """
        ...

    async def ask(self, instance_id: str) -> Sign:
        """Is this process there? Never takes longer than about a second."""
        ...

"""Which logs have only just begun; for whoever looks for what was begun and never accepted."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class Beginnings(Protocol):
    """Looks over all logs at once, without reading any."""

    def pages(self) -> AsyncIterator[Sequence[str]]:
        """Ids of the executions whose log is a single commit, some at a time; UnavailableError if nobody can say.

        Those that begin meanwhile may be missing. It costs more the more executions there are: not for every minute.
        """
        ...

"""What this layer needs from the outside, and nothing about how it is done."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from pyoco_server.core import Event
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import Isolation


class LogConflictError(PyocoServerError):
    """Somebody else appended first; nothing was written."""

    def __init__(self, execution_id: str, after: int) -> None:
        super().__init__(f"the log of '{execution_id}' has moved on from position {after}")
        self.execution_id = execution_id
        self.after = after


class EventLog(Protocol):
    """One log an execution; the order of appends decides every race."""

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int) -> int:
        """Add a commit if the log still ends at ``after``, and return where it ends now; else LogConflictError."""
        ...

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events behind ``after``, and where the log ends."""
        ...


class Clock(Protocol):
    """The time, and waiting for it."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Come back after so many seconds."""
        ...


class Workshop(Protocol):
    """Where functions are called. Cancelling the call frees its place, whatever the function does."""

    async def call(self, function: Callable[..., Any], kwargs: dict[str, Any], *, isolation: Isolation) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function and return what it returns, or raise what it raises."""
        ...

    async def close(self) -> None:
        """Let go of all places."""
        ...


NewId = Callable[[], str]

"""What the engine needs: the time, ids, and somewhere to call functions."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol

from pyoco_server.app.shield import Shield
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import Interrupt, Isolation


class Clock(Protocol):
    """The time, and waiting for it."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Come back after so many seconds."""
        ...


class CallOverdueError(PyocoServerError):
    """A call took longer than it may; not a TimeoutError, for a function may raise one of its own."""

    def __init__(self, timeout_sec: float) -> None:
        super().__init__(f"the call took longer than {timeout_sec} s")
        self.timeout_sec = timeout_sec


class Watch:
    """A call seen from outside: the workshop tells how it goes, and it can be asked to end."""

    __slots__ = ("_on_begin", "at_place", "begun", "interrupt", "is_asked", "manner", "shield")

    def __init__(self, shield: Shield | None = None, manner: Interrupt = Interrupt.RAISE) -> None:
        self.shield = shield or Shield()
        """While it is closed the function is not interrupted."""
        self.manner = manner
        """How the function learns that it is to end."""
        self.begun = False
        """Does the function run, or has it? Before that, the call waits for a place. A process tells only if asked."""
        self.is_asked = False
        self.interrupt: Callable[[], object] | None = None
        """How what runs now is told to end, if there is a way; set by the workshop."""
        self.at_place: Callable[[], Awaitable[None]] | None = None
        """Awaited when there is a place in a process, just before the function is sent there; what it raises ends the
        call."""
        self._on_begin: list[Callable[[], None]] = []

    def when_begun(self, callback: Callable[[], None]) -> None:
        """Call back in the moment the function begins."""
        self._on_begin.append(callback)

    @property
    def is_waited_for(self) -> bool:
        """Does somebody want to know when the function begins?"""
        return bool(self._on_begin)

    def begin(self) -> None:
        """For the workshop: the function begins now."""
        if not self.begun:
            self.begun = True
            for callback in self._on_begin:
                callback()

    def ask_to_stop(self) -> None:
        """Tell what runs that it should end, if there is a way to; once."""
        if not self.is_asked:
            self.is_asked = True
            if self.interrupt is not None:
                self.interrupt()


class Workshop(Protocol):
    """Where functions are called. Cancelling the call frees its place, whatever the function does."""

    async def call(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: Watch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function and return what it returns, or raise what it raises; what can be awaited is awaited.

        ``timeout_sec`` counts from the moment the function begins, not while the call waits for a place; then the call
        is given up on as by a cancel, and ``CallOverdueError`` is raised.
        """
        ...

    async def close(self) -> None:
        """Let go of all places."""
        ...


NewId = Callable[[], str]

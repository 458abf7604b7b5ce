"""What the engine needs to call functions: the executor, a view of each call, the time, and ids."""

import threading
from collections.abc import Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar

from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import Interrupt, Isolation

T = TypeVar("T")


class Shield:
    """The sections of one attempt that must not be interrupted; ``with shield:`` may be nested, in any thread.

    The code that interrupts the attempt waits while ``is_closed``. It leaves a callback with ``when_open``, which is
    called once, when the outermost section ends, in the thread that leaves it; its exceptions are raised there.
    """

    def __init__(self, on_change: Callable[[bool], object] | None = None) -> None:
        """``on_change`` is called with True when the outermost section begins, and with False when it ends."""
        self._lock = threading.Lock()
        self._depth = 0
        self._when_open: Callable[[], object] | None = None
        self._on_change = on_change

    @property
    def is_closed(self) -> bool:
        """Whether a section is open."""
        return self._depth > 0

    def when_open(self, callback: Callable[[], object]) -> None:
        """Set the callback for the end of the current or next outermost section; it replaces an earlier one."""
        self._when_open = callback

    def __enter__(self) -> None:
        """Begin a section."""
        self._enter(+1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the section; an interruption that waited for it happens now."""
        if self._enter(-1) == 0:
            callback, self._when_open = self._when_open, None
            if callback is not None:
                callback()

    def _enter(self, step: int) -> int:
        with self._lock:
            self._depth += step
            depth = self._depth
            if self._on_change is not None and (depth == 0 or (depth == 1 and step > 0)):
                self._on_change(depth > 0)
        return depth


class Clock(Protocol):
    """Reads the time and waits."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class CallOverdueError(PyocoServerError):
    """A call exceeded its timeout. Not a TimeoutError, which the function itself may raise."""

    def __init__(self, timeout_sec: float) -> None:
        super().__init__(f"the call took longer than {timeout_sec} s")
        self.timeout_sec = timeout_sec


class CallWatch:
    """A call as seen by its caller: the executor reports when it begins, and the caller can ask it to end."""

    __slots__ = ("_on_begin", "at_place", "begun", "interrupt", "is_asked", "manner", "shield")

    def __init__(self, shield: Shield | None = None, manner: Interrupt = Interrupt.RAISE) -> None:
        self.shield = shield or Shield()
        """While it is closed, the function is not interrupted."""
        self.manner = manner
        """How the function is interrupted."""
        self.begun = False
        """False while the call waits for a slot. A process reports the beginning only if a callback is set."""
        self.is_asked = False
        self.interrupt: Callable[[], object] | None = None
        """Interrupts the function, if there is a way; set by the executor."""
        self.at_place: Callable[[], Awaitable[None]] | None = None
        """Awaited when a process is free, just before the function is sent to it; an exception ends the call."""
        self._on_begin: list[Callable[[], None]] = []

    def when_begun(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the function begins."""
        self._on_begin.append(callback)

    @property
    def is_waited_for(self) -> bool:
        """Whether a callback is set for the beginning of the function."""
        return bool(self._on_begin)

    def begin(self) -> None:
        """Report that the function begins; called by the executor."""
        if not self.begun:
            self.begun = True
            for callback in self._on_begin:
                callback()

    def ask_to_stop(self) -> None:
        """Interrupt the function once, if there is a way."""
        if not self.is_asked:
            self.is_asked = True
            if self.interrupt is not None:
                self.interrupt()


class TaskExecutor(Protocol):
    """Calls functions. Cancelling a call frees its slot, whatever the function does."""

    async def call(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: CallWatch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function and return what it returns, or raise what it raises; an awaitable result is awaited.

        ``timeout_sec`` counts from when the function begins, not while the call waits for a slot. At the timeout the
        call is abandoned as by a cancel, and ``CallOverdueError`` is raised.
        """
        ...

    async def aside(self, call: Callable[[], T]) -> T:
        """Make a call that is no task's but runs code of users, such as to store a value: in a thread, not in a slot.

        Cancelling it abandons and interrupts the call.
        """
        ...

    async def close(self) -> None:
        """Release all slots."""
        ...


NewId = Callable[[], str]

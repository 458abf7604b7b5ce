"""Sections of a task that must finish: while one is open, the task is not interrupted."""

import threading
from collections.abc import Callable
from types import TracebackType


class Shield:
    """The shield of one attempt; ``with shield:`` may be nested and used from any thread.

    What interrupts the attempt waits while ``is_closed``. It leaves a callback with ``when_open``, which is called
    once, when the outermost section ends, in the thread that leaves it. What the callback raises is raised there.
    """

    def __init__(self, on_change: Callable[[bool], object] | None = None) -> None:
        """``on_change`` is called with True when the outermost section begins, and with False when it ends."""
        self._lock = threading.Lock()
        self._depth = 0
        self._when_open: Callable[[], object] | None = None
        self._on_change = on_change

    @property
    def is_closed(self) -> bool:
        """Is a section under way?"""
        return self._depth > 0

    def when_open(self, callback: Callable[[], object]) -> None:
        """Call back at the end of the next outermost section, or of this one; replaces a callback given before."""
        self._when_open = callback

    def __enter__(self) -> None:
        """Begin a section."""
        self._enter(+1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the section; an interruption that waited for it comes now."""
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

"""A clock for tests: virtual hours pass at once, and never while user code runs.

Time does not move until the event loop that sleeps on the clock is *quiet*: it has nothing to run. Then time jumps to
the next sleeper. The loop does not see work in threads and processes, so the caller of such work takes a
:meth:`VirtualClock.hold`, and time does not move until it is released.
"""

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""Where time begins unless a test sets it: always the same, so that logs can be compared."""

QUIET_ROUNDS: Final = 50
"""How many turns of the loop in a row must find nothing to run before the loop counts as quiet.

Two suffice for asyncio's own loops, whose queue can be read; other loops need more.
"""


class _Sleeper:
    """A call of ``sleep`` that is due at a moment; calls due at the same moment return in the order of the calls."""

    __slots__ = ("moment", "number", "wake")

    def __init__(self, moment: datetime, number: int, wake: asyncio.Future[None]) -> None:
        self.moment = moment
        self.number = number
        self.wake = wake

    def __lt__(self, other: "_Sleeper") -> bool:
        return (self.moment, self.number) < (other.moment, other.number)


class _Advance:
    """A call of ``advance`` in progress, to the moment ``until``; holds in ``ignored`` do not stop it."""

    __slots__ = ("done", "ignored", "until")

    def __init__(self, until: datetime, ignored: frozenset[object]) -> None:
        self.until = until
        self.ignored = ignored
        self.done = threading.Event()


class VirtualClock:
    """Serves the Clock port. Belongs to one event loop; everything but ``sleep`` may be called from any thread.

    ``on_stall`` is called on that loop when it is quiet and there is no hold and no sleeper: nothing more will happen
    without a caller from outside.
    """

    def __init__(self, start: datetime = START, *, on_stall: Callable[[], None] | None = None) -> None:
        if start.tzinfo is None:
            raise ValueError("start needs a time zone, for example datetime(2030, 1, 1, tzinfo=UTC)")
        self._now = start.astimezone(UTC)
        self._on_stall = on_stall
        self._numbers = itertools.count()
        self._sleepers: list[_Sleeper] = []
        self._holds: set[object] = set()
        self._is_paused = False
        self._advance: _Advance | None = None
        self._lock = threading.Lock()  # guards all but the sleepers, which belong to the loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_looking = False

    def now(self) -> datetime:
        """The current virtual time, in UTC."""
        with self._lock:
            return self._now

    async def sleep(self, seconds: float) -> None:
        """Return when so many virtual seconds have passed."""
        self.attach()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, _Sleeper(self.now() + timedelta(seconds=seconds), next(self._numbers), wake))
        self._begin_to_look()
        await wake  # a sleeper that is cancelled stays in the heap, with a future that is done, and is skipped there

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Stop time inside the ``with``, for work that the loop does not see."""
        token = object()
        with self._lock:
            self._holds.add(token)
        try:
            yield
        finally:
            with self._lock:
                self._holds.discard(token)
            self._look_soon()

    def pause(self) -> None:
        """Move time only by :meth:`advance` from now on."""
        with self._lock:
            self._is_paused = True

    def unpause(self) -> None:
        """Undo :meth:`pause`."""
        with self._lock:
            self._is_paused = False
        self._look_soon()

    def advance(self, seconds: float, *, overtake: bool = False) -> None:
        """Move time by so many seconds; return when every sleeper due by then has been woken.

        Waits for work that holds the clock, also for work that starts on the way. With ``overtake``, holds that exist
        at the call do not stop time: it moves past work that does not end.
        """
        if seconds < 0:
            raise ValueError("time does not go backwards")
        self._refuse_on_own_loop()
        with self._lock:
            if self._advance is not None:
                raise RuntimeError("another thread is advancing this clock")
            until = self._now + timedelta(seconds=seconds)
            if self._loop is None or self._loop.is_closed():
                self._now = until
                return
            advance = self._advance = _Advance(until, frozenset(self._holds) if overtake else frozenset())
        self._look_soon()
        advance.done.wait()

    def abort_advance(self) -> bool:
        """End an :meth:`advance` that another thread waits for; False if there is none."""
        with self._lock:
            advance, self._advance = self._advance, None
        if advance is not None:
            advance.done.set()
        return advance is not None

    def attach(self) -> None:
        """Make the running loop the one whose quiet lets time pass; the first ``sleep`` does that too."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._loop not in {None, loop}:
                raise RuntimeError("a VirtualClock serves one event loop; give each engine a clock of its own")
            self._loop = loop

    # --- On the loop -------------------------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed and has no sleepers
                loop.call_soon_threadsafe(self._begin_to_look)

    def _begin_to_look(self) -> None:
        if not self._is_looking and self._loop is not None:
            self._is_looking = True
            self._loop.call_soon(self._look, QUIET_ROUNDS)

    def _look(self, rounds: int) -> None:
        """Wait one turn for quiet; stop while time is held: the end of the hold starts looking again."""
        loop = self._loop
        if loop is None or self._is_held():
            self._is_looking = False
        elif getattr(loop, "_ready", ()):  # asyncio's queue of callbacks; it has no public form
            loop.call_soon(self._look, QUIET_ROUNDS)
        elif rounds > 0:
            loop.call_soon(self._look, rounds - 1)
        else:
            self._is_looking = False
            self._jump()

    def _is_held(self) -> bool:
        with self._lock:
            if self._advance is not None:
                return not self._holds <= self._advance.ignored
            return self._is_paused or bool(self._holds)

    def _jump(self) -> None:
        """The loop is quiet: wake the next sleepers, end an advance, or report that nothing will happen."""
        while self._sleepers and self._sleepers[0].wake.done():
            heapq.heappop(self._sleepers)
        if self._ends_advance():
            self._begin_to_look()
        elif self._sleepers:
            self._wake_next()
            self._begin_to_look()
        elif self._on_stall is not None:
            self._on_stall()

    def _ends_advance(self) -> bool:
        with self._lock:
            advance = self._advance
            if advance is None or (self._sleepers and self._sleepers[0].moment <= advance.until):
                return False
            self._now = max(self._now, advance.until)
            self._advance = None
        advance.done.set()
        return True

    def _wake_next(self) -> None:
        """Wake all sleepers due at the next moment, since in real time they run at the same time."""
        with self._lock:
            moment = self._now = max(self._now, self._sleepers[0].moment)
        while self._sleepers and self._sleepers[0].moment <= moment:
            sleeper = heapq.heappop(self._sleepers)
            if not sleeper.wake.done():
                sleeper.wake.set_result(None)

    def _refuse_on_own_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            raise RuntimeError("advance() blocks; on the clock's own event loop it would wait for itself")

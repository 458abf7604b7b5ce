"""Wait for a condition of a run while virtual time passes, and stop time as soon as it holds."""

import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto, unique

from pyoco_server.core import Event, ExecutionState
from pyoco_server.testing.virtual_clock import VirtualClock

Condition = Callable[[ExecutionState], bool]


@unique
class Sight(Enum):
    """What waiting led to."""

    SEEN = auto()
    """The condition holds."""
    STALLED = auto()
    """Nothing runs or sleeps: nothing more happens without a command."""
    LOST_PATIENCE = auto()
    """It took too much real time."""


class _Watch:
    """One wait for one run."""

    def __init__(self, run_id: str, condition: Condition) -> None:
        self.run_id = run_id
        self.condition = condition
        self.sight = Sight.LOST_PATIENCE
        self.over = threading.Event()


class Watchman:
    """Keeps the state of every run, and pauses the clock except during a :meth:`wait`.

    Time passes only when a test waits, so the test can inspect a run that waits with a deadline. One wait at a time.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock(on_stall=self._stalled)
        self._states: dict[str, ExecutionState] = {}
        self._watch: _Watch | None = None
        self._lock = threading.RLock()
        self.clock.pause()

    def listen(self, _: Sequence[Event], state: ExecutionState) -> None:
        """Record a commit; called on the engine's loop before anything else follows from it."""
        self.clock.attach()
        with self._lock:
            self._states[state.execution_id] = state
            watch = self._watch
            if watch is not None and watch.run_id == state.execution_id and watch.condition(state):
                self._end(watch, Sight.SEEN)

    def state(self, run_id: str) -> ExecutionState | None:
        """The state of a run; None for an unknown run."""
        with self._lock:
            return self._states.get(run_id)

    def wait(self, run_id: str, condition: Condition, patience_sec: float) -> Sight:
        """Let time pass until the condition holds of the run, or nothing happens any more."""
        watch = _Watch(run_id, condition)
        with self._lock:
            if self._watch is not None:
                raise RuntimeError("another thread is waiting with this tester; wait in one thread at a time")
            if run_id in self._states and condition(self._states[run_id]):
                return Sight.SEEN
            self._watch = watch
            self.clock.unpause()  # still under the lock, or it could come after the pause that ends the watch
        watch.over.wait(patience_sec)
        with self._lock:
            if self._watch is watch:
                self._end(watch, Sight.LOST_PATIENCE)
        return watch.sight

    def _stalled(self) -> None:
        with self._lock:
            if self._watch is not None:
                self._end(self._watch, Sight.STALLED)

    def _end(self, watch: _Watch, sight: Sight) -> None:
        """Stop time at once: the waiting thread may wake up later."""
        self.clock.pause()
        self._watch = None
        watch.sight = sight
        watch.over.set()

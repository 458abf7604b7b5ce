"""A deterministic event loop: the same seed gives the same order of callbacks.

Time is virtual: it stands still while a callback is ready, then jumps to the next timer. Every callback belongs to a
simulated *process*, which a context variable carries. Inside a process callbacks run in the order of asyncio; the seed
decides which process runs next. Between any two callbacks a process can pause, or die: then none of its callbacks runs
any more, and no ``finally`` either, as after a SIGKILL.
"""

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar, TypeVarTuple

from typing_extensions import override

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_STEPS: Final = 400_000
"""A world that runs more callbacks than this is in an endless loop."""

TEARDOWN_ROUNDS: Final = 20
LAST_WAIT_SEC: Final = 60.0


class StuckError(Exception):
    """No callback is left although the world has not ended, or the loop ran too many of them."""


_process: contextvars.ContextVar["Process"] = contextvars.ContextVar("simulated process")


class Process:
    """A group of callbacks that pause and die together."""

    __slots__ = ("alive", "context", "crash_at", "name", "pause_at", "paused", "ready", "steps")

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)
        self.alive = True
        self.paused = False
        self.steps = 0
        """How many callbacks it has run."""
        self.crash_at = -1
        """The callback before which it dies; -1 for none."""
        self.pause_at = -1
        """The callback before which it pauses; -1 for none."""
        self.ready: deque[asyncio.Handle] = deque()


class SimLoop(asyncio.BaseEventLoop):
    """One thread, no file descriptors, no real time."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.server = Process("server")
        """The owner of the callbacks that no crash stops: those of the store and of the network."""
        self.on_crash: Callable[[Process], None] = lambda _process: None
        self.on_pause: Callable[[Process], None] = lambda _process: None
        self.at_work: Callable[[str, str], int] = lambda _run_id, _task: 1
        """Tasks call it with their run and name when they start; it returns how often this task was called."""
        self.disk_delay: Callable[[], float] = lambda: 0.0
        self.problems: list[str] = []
        """Exceptions that no code caught."""
        self.steps = 0
        self._chance = chance.random
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._active: list[Process] = []
        self._processes: list[Process] = [self.server]
        self._made: list[tuple[Process, asyncio.Task[Any]]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_problem)

    @override
    def time(self) -> float:
        return self._now

    # --- Processes ---------------------------------------------------------------------------------------------------

    def current(self) -> Process:
        """Return the process whose callback is running."""
        return _process.get(self.server)

    def process(self, name: str) -> Process:
        """Create a process."""
        made = Process(name)
        self._processes.append(made)
        return made

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine inside a process."""
        return self.create_task(work, context=process.context.copy())

    def start(self, process: Process, work: Coroutine[Any, Any, object]) -> None:
        """Start a coroutine inside a process, and do not wait for it."""
        _ = self.spawn(process, work)

    def later(self, process: Process, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback inside a process."""
        self.call_at(self._now + delay, callback, *args, context=process.context)

    def server_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback that no crash stops."""
        self.call_at(self._now + delay, callback, *args, context=self.server.context)

    def kill(self, process: Process) -> None:
        """Stop the process for ever, without running any of its code."""
        process.alive = False  # its ready callbacks stay in their queue: see tear_down
        if process in self._active:
            self._active.remove(process)

    def pause(self, process: Process) -> None:
        """Stop the process until ``unpause``; its timers become due meanwhile."""
        process.paused = True
        if process in self._active:
            self._active.remove(process)

    def unpause(self, process: Process) -> None:
        """Let a paused process run again, with all callbacks that became ready meanwhile."""
        if process.paused:
            process.paused = False
            if process.ready and process.alive:
                self._active.append(process)

    # --- The interface of asyncio ------------------------------------------------------------------------------------

    @override
    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle, context.get(_process, self.server))
        return handle

    call_soon_threadsafe = call_soon

    @override
    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    @override
    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the loop skips cancelled timers when they become due."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no files."""

    @override
    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function in the loop instead of a thread, after the disk delay."""
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 the future raises it in the code that awaits it
                done.set_exception(error)

        self.call_later(self.disk_delay(), run)
        return done

    # --- Running -----------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one callback of one process at a time until the loop is stopped; advance time when none is ready."""
        chance, active = self._chance, self._active
        while not self._stopping:  # type: ignore[attr-defined]
            if not active:
                self._let_time_pass()
                continue
            place = int(chance() * len(active)) if len(active) > 1 else 0
            process = active[place]
            process.steps += 1
            if process.steps == process.crash_at:
                self.on_crash(process)
                continue
            if process.steps == process.pause_at:
                self.on_pause(process)
                continue
            handle = process.ready.popleft()
            if not process.ready:
                active[place] = active[-1]
                active.pop()
            self.steps += 1
            if not handle._cancelled:
                handle._run()
            if self.steps > MOST_STEPS:
                raise StuckError(f"no end after {MOST_STEPS} steps, at {self._now:.1f} s")

    def _put(self, handle: asyncio.Handle, process: Process) -> None:
        if not process.ready and not process.paused and process.alive:
            self._active.append(process)
        process.ready.append(handle)

    def _let_time_pass(self) -> None:
        """Advance to the next timer, and make all timers that are due then ready."""
        if not self._timers:
            raise StuckError(f"nothing will happen any more, at {self._now:.1f} s")
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            handle = heapq.heappop(self._timers)[2]
            if not handle._cancelled:
                context: contextvars.Context = handle._context  # type: ignore[attr-defined]
                self._put(handle, context.get(_process, self.server))

    def _make_task(self, _loop: object, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, **options)
        context = options.get("context")
        process = self.current() if context is None else context.get(_process, self.server)
        # Collecting a task of a dead process would run its ``finally``, so the loop keeps a reference to each.
        self._made.append((process, task))
        return task

    def _note_problem(self, _loop: object, context: dict[str, Any]) -> None:
        if "handle" in context:  # otherwise it is about a task of a dead process
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    # --- The end -----------------------------------------------------------------------------------------------------

    def unretrieved(self) -> Iterator[BaseException]:
        """Return the exceptions of tasks of living processes that no code has retrieved."""
        for process, task in self._made:
            if process.alive and task.done() and getattr(task, "_log_traceback", False):
                error = task.exception()
                if error is not None:
                    yield error

    def tear_down(self) -> None:
        """Cancel all tasks, also those of dead processes, and close the loop."""
        self.problems, self.steps = [], 0
        for process in self._processes:
            process.alive, process.paused, process.crash_at, process.pause_at = True, False, -1, -1
        self._active[:] = [process for process in self._processes if process.ready]
        self.run_until_complete(self._cancel_all())
        self._made.clear()
        self.close()

    async def _cancel_all(self) -> None:
        left: list[asyncio.Task[Any]] = []
        for _ in range(TEARDOWN_ROUNDS):
            left = [task for _, task in self._made if not task.done() and task is not asyncio.current_task()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(LAST_WAIT_SEC)
        raise StuckError(f"{len(left)} tasks do not end: {left[:3]}")

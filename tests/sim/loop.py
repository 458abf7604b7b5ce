"""An event loop in which nothing is left to chance but what the seed decides.

Time is virtual: it stands still while anything is left to do, then jumps to the next timer. Everything that runs
belongs to a simulated *process*, carried along in a context variable. Inside a process callbacks run in the order
asyncio promises; which process runs next is the seed's choice. Between any two callbacks a process can be stopped for a
while, or die: then nothing of it runs any more, no ``finally`` either, just as after a SIGKILL.
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
"""A world that takes more callbacks than this goes round in circles."""

TEARDOWN_ROUNDS: Final = 20
LAST_WAIT_SEC: Final = 60.0


class StuckError(Exception):
    """Nothing will ever happen any more, or far too much does."""


_process: contextvars.ContextVar["Process"] = contextvars.ContextVar("simulated process")


class Process:
    """Something that can be stopped and killed as a whole."""

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
        """Before which of them it dies."""
        self.pause_at = -1
        """Before which of them it stands still."""
        self.ready: deque[asyncio.Handle] = deque()


class SimLoop(asyncio.BaseEventLoop):
    """One thread, no file descriptors, no real time."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.server = Process("server")
        """What is not part of any process that can die: the store, the network, time itself."""
        self.on_crash: Callable[[Process], None] = lambda _process: None
        self.on_pause: Callable[[Process], None] = lambda _process: None
        self.at_work: Callable[[str, str], int] = lambda _run_id, _task: 1
        """Told by tasks that they were called: of which run, under which name; says for the how manieth time."""
        self.disk_delay: Callable[[], float] = lambda: 0.0
        self.problems: list[str] = []
        """Exceptions nobody caught."""
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
        """Whose callback is running."""
        return _process.get(self.server)

    def process(self, name: str) -> Process:
        """A new process."""
        made = Process(name)
        self._processes.append(made)
        return made

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin something inside a process."""
        return self.create_task(work, context=process.context.copy())

    def start(self, process: Process, work: Coroutine[Any, Any, object]) -> None:
        """Begin something inside a process that nobody waits for."""
        _ = self.spawn(process, work)

    def later(self, process: Process, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back inside a process."""
        self.call_at(self._now + delay, callback, *args, context=process.context)

    def server_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back where no crash prevents it."""
        self.call_at(self._now + delay, callback, *args, context=self.server.context)

    def kill(self, process: Process) -> None:
        """Nothing of the process runs any more."""
        process.alive = False  # what is ready stays where it is: see tear_down
        if process in self._active:
            self._active.remove(process)

    def pause(self, process: Process) -> None:
        """The process stands still; its timers fall due meanwhile."""
        process.paused = True
        if process in self._active:
            self._active.remove(process)

    def go_on(self, process: Process) -> None:
        """The process wakes up, and finds everything that has happened meanwhile."""
        if process.paused:
            process.paused = False
            if process.ready and process.alive:
                self._active.append(process)

    # --- What asyncio asks for ---------------------------------------------------------------------------------------

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
        """It is skipped when its time comes."""

    def _write_to_self(self) -> None:
        """There is no other thread."""

    def _process_events(self, event_list: object) -> None:
        """There are no files."""

    @override
    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What would run in a thread runs here, after as long as the disk takes."""
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 it belongs to whoever waits
                done.set_exception(error)

        self.call_later(self.disk_delay(), run)
        return done

    # --- Running -----------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Until somebody says stop: let one process take one step, and time pass when none can."""
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
        """Make everything ready that is due at the next moment."""
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
        self._made.append(
            (process, task)
        )  # what a dead process leaves behind must not be collected: that would run its finally
        return task

    def _note_problem(self, _loop: object, context: dict[str, Any]) -> None:
        if "handle" in context:  # not what is left of those who died
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    # --- The end -----------------------------------------------------------------------------------------------------

    def unheard(self) -> Iterator[BaseException]:
        """What tasks of those who live died of without anybody asking."""
        for process, task in self._made:
            if process.alive and task.done() and getattr(task, "_log_traceback", False):
                error = task.exception()
                if error is not None:
                    yield error

    def tear_down(self) -> None:
        """Let everything go that is left, what the dead left behind as well, and close."""
        self.problems, self.steps = [], 0
        for process in self._processes:
            process.alive, process.paused, process.crash_at, process.pause_at = True, False, -1, -1
        self._active[:] = [process for process in self._processes if process.ready]
        self.run_until_complete(self._let_go())
        self._made.clear()
        self.close()

    async def _let_go(self) -> None:
        left: list[asyncio.Task[Any]] = []
        for _ in range(TEARDOWN_ROUNDS):
            left = [task for _, task in self._made if not task.done() and task is not asyncio.current_task()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(LAST_WAIT_SEC)
        raise StuckError(f"{len(left)} tasks do not end: {left[:3]}")

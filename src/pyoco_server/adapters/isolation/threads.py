"""User functions in a bounded number of threads.

A thread cannot be ended from outside, but an exception can be raised in it (see ``interrupts``): that is how a call
learns that it is cancelled. When the task that waits for a call is cancelled, the call is *abandoned* and interrupted:
its slot is free at once and another thread takes its place, while the old one runs on until its call ends. All threads
are daemons, so an abandoned one does not keep the program from ending.

What is dear about a call in a thread is waking: the thread, and then the event loop. So of the idle workers one at a
time is woken, the one that was busy last; it wakes the next if there is more to do than it takes, and it does not go to
sleep while there is. Calls that have ended are told to the loop together, as many as there are when it gets to look.
"""

import asyncio
import contextlib
import contextvars
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, TypeVar

from pyoco_server.adapters.isolation.errors import fit_to_raise
from pyoco_server.adapters.isolation.interrupts import Interrupter, Interruption, current_thread
from pyoco_server.adapters.isolation.slots import FairSlots
from pyoco_server.app.shield import Shield

T = TypeVar("T")


class _Stage(Enum):
    HANDED_OVER = auto()  # waits for a worker
    RUNNING = auto()
    ENDED = auto()
    DROPPED = auto()  # cancelled before it ran: never runs
    ABANDONED = auto()  # cancelled while it ran: nobody waits for it


class _Job:
    """A call, and what it led to: an exception is kept beside the future, which cannot hold a StopIteration."""

    __slots__ = ("call", "context", "ended", "error", "interruption", "stage", "value")

    def __init__(self, call: Callable[[], Any], ended: asyncio.Future[None], interruption: Interruption) -> None:
        self.call: Callable[[], Any] | None = call
        self.context = contextvars.copy_context()
        self.ended = ended
        self.interruption = interruption
        self.stage = _Stage.HANDED_OVER
        self.value: Any = None
        self.error: BaseException | None = None

    def perform(self, thread_state: int) -> None:
        """Make the call. Returns normally whatever happens, and no interruption arrives after that."""
        call, self.call = self.call, None
        is_over = call is None
        while not is_over:
            try:
                if call is not None:
                    once, call = call, None
                    self.interruption.begin(thread_state)
                    self.value = self.context.run(once)
                self.interruption.end()
                is_over = True
            except BaseException as error:  # noqa: BLE001 (whatever the user's code raises belongs to who waits)
                if self.error is None:  # else an interruption came when the call had ended
                    self.error = error


_RUNNER: Final = _Job.perform.__code__


class ThreadSlots:
    """Runs plain callables in at most ``limit`` daemon threads. Belongs to one event loop.

    ``name`` begins the names of the threads; a worker ends after ``idle_sec`` without a call.
    """

    def __init__(self, limit: int, *, name: str, idle_sec: float = 5.0) -> None:
        self._slots = FairSlots(limit)
        self._pool = _Pool(name, idle_sec)

    @property
    def abandoned(self) -> int:
        """How many calls still run although nobody waits for them."""
        return self._pool.abandoned

    @property
    def running(self) -> int:
        """How many slots are taken."""
        return self._slots.in_use

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return self._slots.waiting

    async def run(
        self,
        call: Callable[[], T],
        *,
        on_begin: Callable[[Callable[[], None]], None] | None = None,
        is_interrupted: bool = True,
        shield: Shield | None = None,
    ) -> T:
        """Run the call in a thread, with the caller's context variables, as soon as a slot is free.

        ``on_begin`` is called in the event loop when there is one and the call goes to its thread, with a function that
        interrupts the call. Without ``is_interrupted`` nothing interrupts it; while ``shield`` is closed that waits.
        Returns or raises what the call does, but for exceptions that would steer the event loop: see
        ``ControlFlowError``. Cancelled while it waits, the call never runs; cancelled while it runs, it is abandoned
        and interrupted. Raises ``SlotsClosedError`` if ``close`` came first.
        """
        if not self._slots.take():
            await self._slots.acquire()
        try:
            loop = asyncio.get_running_loop()
            job = _Job(call, loop.create_future(), Interruption(_RUNNER, shield, is_wanted=is_interrupted))
            if on_begin is not None:
                on_begin(functools.partial(self._pool.interrupt, job))
            self._pool.hand_over(job, loop)
            try:
                await job.ended
            except asyncio.CancelledError:
                self._pool.give_up(job)
                self._pool.interrupt(job)
                raise
        finally:
            self._slots.release()
        if job.error is None:
            value: T = job.value
            return value
        try:
            raise fit_to_raise(job.error)
        finally:
            del job  # or the traceback of the error and this frame would hold each other

    async def close(self, timeout_sec: float) -> int:
        """Take no more calls and wait for the running ones; returns how many are still running after the limit.

        Those are left alone: whoever waits for one may go on waiting, or cancel and so abandon it.
        """
        self._slots.close()
        self._pool.close()
        await self._slots.drained(timeout_sec)
        return self._slots.in_use


class _Pool:
    """Jobs, idle workers, and jobs that have ended: all that the event loop and the workers share, under one lock."""

    def __init__(self, name: str, idle_sec: float) -> None:
        self.idle_sec = idle_sec
        self.abandoned = 0
        self._name = name
        self._interrupter = Interrupter(f"interrupter of {name}")
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._todo: deque[_Job] = deque()
        self._idle: list[_Worker] = []
        self._is_waking = False  # a worker was woken and has not come yet: it will see to what is there then
        self._ended: list[_Job] = []
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- In the event loop -------------------------------------------------------------------------------------------

    def hand_over(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        """Have a worker do it. Raises what starting a thread raises if there is none and can be none."""
        with self._lock:
            self._loop = loop
            self._todo.append(job)
            if self._is_waking:
                return
            self._is_waking = True
            worker = self._idle.pop() if self._idle else None
        try:
            self._wake(worker)
        except RuntimeError:
            self.give_up(job)
            raise

    def give_up(self, job: _Job) -> None:
        """Nobody waits for the job any more."""
        with self._lock:
            if job.stage is _Stage.HANDED_OVER:
                job.stage = _Stage.DROPPED
                job.call = None  # what is left of it is skipped by the worker that finds it
            elif job.stage is _Stage.RUNNING:
                job.stage = _Stage.ABANDONED
                self.abandoned += 1

    def interrupt(self, job: _Job) -> None:
        """Raise an exception in the job's call as soon as that is safe, unless it never begins or has ended."""
        if job.stage in {_Stage.HANDED_OVER, _Stage.RUNNING, _Stage.ABANDONED}:
            self._interrupter.interrupt(job.interruption)

    def close(self) -> None:
        """End the idle workers now and the others when there is nothing left to do."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.bell.release()

    def _tell(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for job in ended:
            if not job.ended.done():
                job.ended.set_result(None)

    # --- In the workers ----------------------------------------------------------------------------------------------

    def first(self, worker: "_Worker") -> _Job | None:
        """For a worker that was just woken or started: something to do, or None; then it is idle, or may go."""
        with self._lock:
            self._is_waking = False
            job = self._next(worker)
            next_to_wake = self._next_to_wake()
        self._wake_if(next_to_wake)
        return job

    def next_after(self, job: _Job, worker: "_Worker") -> _Job | None:
        """The job's call has ended: tell the event loop, and go on with the next."""
        with self._lock:
            if job.stage is _Stage.ABANDONED:
                self.abandoned -= 1
                worker.is_leaving = True  # another has taken its place
                return None
            job.stage = _Stage.ENDED
            is_first = not self._ended
            self._ended.append(job)
            following = self._next(worker)
            next_to_wake = self._next_to_wake()
        self._wake_if(next_to_wake)
        if is_first:  # the others go with it
            self._tell_soon()
        return following

    def leave(self, worker: "_Worker") -> bool:
        """Whether an idle worker may end; not if it is just being woken."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def _next(self, worker: "_Worker") -> _Job | None:
        while self._todo:
            job = self._todo.popleft()
            if job.stage is _Stage.HANDED_OVER:
                job.stage = _Stage.RUNNING
                return job
        if self._is_closed:
            worker.is_leaving = True
        else:
            self._idle.append(worker)
        return None

    def _next_to_wake(self) -> "tuple[_Worker | None] | None":
        """Who is to be woken, (None,) for a new one; None if nobody is needed."""
        if not self._todo or self._is_waking:
            return None
        self._is_waking = True
        return (self._idle.pop() if self._idle else None,)

    def _wake_if(self, who: "tuple[_Worker | None] | None") -> None:
        if who is not None:
            # No more threads to be had: what is left to do waits for a worker that has ended its call.
            with contextlib.suppress(RuntimeError):
                self._wake(who[0])

    def _wake(self, worker: "_Worker | None") -> None:
        if worker is not None:
            worker.bell.release()
            return
        try:
            _Worker(self, f"{self._name}-{next(self._numbers)}")
        except RuntimeError:
            with self._lock:
                self._is_waking = False
            raise

    def _tell_soon(self) -> None:
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._tell)
        except RuntimeError:  # the loop was closed over a running call: there is nobody to tell
            with self._lock:
                self._ended.clear()


class _Worker:
    """A thread that does jobs until there are none and it is told to go, was idle for too long, or was abandoned."""

    def __init__(self, pool: _Pool, name: str) -> None:
        self.bell = threading.Lock()
        """Released to wake the worker, which holds it otherwise."""
        self.is_leaving = False
        self._pool = pool
        self.bell.acquire()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        thread_state = current_thread()
        while True:
            job = self._pool.first(self)
            while job is not None:
                job.perform(thread_state)
                job = self._pool.next_after(job, self)
            if self.is_leaving or not self._is_woken():
                return

    def _is_woken(self) -> bool:
        if self.bell.acquire(timeout=self._pool.idle_sec):
            return True
        if self._pool.leave(self):
            return False
        self.bell.acquire()  # somebody is just about to ring
        return True

"""User functions in a bounded number of threads.

A thread cannot be ended from outside, but an exception can be raised in it (see ``interrupts``) to cancel its call.
When the task that waits for a call is cancelled, the call is *abandoned* and interrupted: its slot is free at once and
another thread takes its place, while the old one continues until its call ends. All threads are daemons, so an
abandoned one does not keep the program from ending.

The expensive part of a call in a thread is to wake the thread, and then the event loop. So only one idle worker is
woken at a time, the one that was busy last; it wakes the next if more calls wait, and does not sleep while there are
any. The workers report ended calls to the loop in one batch.
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

from pyoco_server.adapters.executor.errors import fit_to_raise
from pyoco_server.adapters.executor.interrupts import Interrupter, Interruption, current_thread
from pyoco_server.adapters.executor.slots import FairSlots
from pyoco_server.app.ports.task_executor import Shield

T = TypeVar("T")


class _Stage(Enum):
    HANDED_OVER = auto()  # waits for a worker
    RUNNING = auto()
    ENDED = auto()
    DROPPED = auto()  # cancelled before it ran: never runs
    ABANDONED = auto()  # cancelled while it ran: its result is dropped


class _ThreadCall:
    """A call and its outcome: an exception is kept beside the future, which cannot hold a StopIteration."""

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
        """Make the call. Always returns normally, and no interruption arrives after that."""
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
            except BaseException as error:  # noqa: BLE001 (what the user's code raises goes to the caller)
                if self.error is None:  # otherwise an interruption came when the call had ended
                    self.error = error


_RUNNER: Final = _ThreadCall.perform.__code__


class ThreadSlots:
    """Runs plain callables in at most ``limit`` daemon threads. Belongs to one event loop.

    ``name`` begins the names of the threads; a worker ends after ``idle_sec`` without a call.
    """

    def __init__(self, limit: int, *, name: str, idle_sec: float = 5.0) -> None:
        self._slots = FairSlots(limit)
        self._pool = _Pool(name, idle_sec)

    @property
    def abandoned(self) -> int:
        """How many abandoned calls still run."""
        return self._pool.abandoned

    @property
    def running(self) -> int:
        """How many slots are in use."""
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
        Returns or raises what the call does, except for exceptions that would control the event loop: see
        ``ControlFlowError``. A cancel before the call runs prevents it; a cancel while it runs abandons and interrupts
        it. Raises ``SlotsClosedError`` after ``close``.
        """
        if not self._slots.take():
            await self._slots.acquire()
        try:
            loop = asyncio.get_running_loop()
            job = _ThreadCall(call, loop.create_future(), Interruption(_RUNNER, shield, is_wanted=is_interrupted))
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
            del job  # otherwise the traceback of the error and this frame would reference each other

    async def close(self, timeout_sec: float) -> int:
        """Refuse new calls and wait at most ``timeout_sec`` for running ones; return how many still run.

        These are not touched: their callers may continue to wait, or cancel and so abandon them.
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
        self._todo: deque[_ThreadCall] = deque()
        self._idle: list[_PoolThread] = []
        self._is_waking = False  # a woken worker has not reached the queue yet; it will process it
        self._ended: list[_ThreadCall] = []
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- In the event loop -------------------------------------------------------------------------------------------

    def hand_over(self, job: _ThreadCall, loop: asyncio.AbstractEventLoop) -> None:
        """Give the job to a worker. Raises what starting a thread raises if no worker exists or can be started."""
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

    def give_up(self, job: _ThreadCall) -> None:
        """Drop the job, or abandon it if it runs: its caller was cancelled."""
        with self._lock:
            if job.stage is _Stage.HANDED_OVER:
                job.stage = _Stage.DROPPED
                job.call = None  # a worker skips the rest
            elif job.stage is _Stage.RUNNING:
                job.stage = _Stage.ABANDONED
                self.abandoned += 1

    def interrupt(self, job: _ThreadCall) -> None:
        """Raise an exception in the job's call as soon as that is safe; does nothing if it was dropped or has ended."""
        if job.stage in {_Stage.HANDED_OVER, _Stage.RUNNING, _Stage.ABANDONED}:
            self._interrupter.interrupt(job.interruption)

    def close(self) -> None:
        """End the idle workers now and the others when no job is left."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.bell.release()

    def _report_ended(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for job in ended:
            if not job.ended.done():
                job.ended.set_result(None)

    # --- In the workers ----------------------------------------------------------------------------------------------

    def first(self, worker: "_PoolThread") -> _ThreadCall | None:
        """Return a job for a worker that was just woken or started; with None the worker is idle, or may end."""
        with self._lock:
            self._is_waking = False
            job = self._next(worker)
            next_to_wake = self._next_to_wake()
        self._wake_if(next_to_wake)
        return job

    def next_after(self, job: _ThreadCall, worker: "_PoolThread") -> _ThreadCall | None:
        """Report to the event loop that the job has ended, and return the next job."""
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
        if is_first:  # one report covers the jobs that end before the loop reads it
            self._schedule_report()
        return following

    def leave(self, worker: "_PoolThread") -> bool:
        """Remove an idle worker that ends; False if it was woken meanwhile and must not end."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def _next(self, worker: "_PoolThread") -> _ThreadCall | None:
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

    def _next_to_wake(self) -> "tuple[_PoolThread | None] | None":
        """Return the worker to wake, (None,) to start one, or None if no worker is needed."""
        if not self._todo or self._is_waking:
            return None
        self._is_waking = True
        return (self._idle.pop() if self._idle else None,)

    def _wake_if(self, worker: "tuple[_PoolThread | None] | None") -> None:
        if worker is not None:
            # The system has no more threads: the jobs wait for a worker whose call ends.
            with contextlib.suppress(RuntimeError):
                self._wake(worker[0])

    def _wake(self, worker: "_PoolThread | None") -> None:
        if worker is not None:
            worker.bell.release()
            return
        try:
            _PoolThread(self, f"{self._name}-{next(self._numbers)}")
        except RuntimeError:
            with self._lock:
                self._is_waking = False
            raise

    def _schedule_report(self) -> None:
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._report_ended)
        except RuntimeError:  # the loop was closed while a call ran: its caller is gone
            with self._lock:
                self._ended.clear()


class _PoolThread:
    """A thread that runs jobs until the pool is closed and empty, it was idle for too long, or it was abandoned."""

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
            if self.is_leaving or not self._wait_for_bell():
                return

    def _wait_for_bell(self) -> bool:
        """Sleep until the pool wakes this worker; False if it was idle for too long and may end."""
        if self.bell.acquire(timeout=self._pool.idle_sec):
            return True
        if self._pool.leave(self):
            return False
        self.bell.acquire()  # the pool has chosen this worker and is about to release the bell
        return True

"""User functions in a bounded number of threads.

A thread cannot be ended from outside. When the task that waits for a call is cancelled, the call is *abandoned*: its
slot is free at once and another thread takes its place, while the old one runs on, unheard, until its call ends. All
threads are daemons, so an abandoned one does not keep the program from ending.

A worker belongs to exactly one place at any time: the list of idle workers, or a job. Both the event loop and the
workers move it, under one lock; whoever loses a race (cancel against end, idle time-out against new job) sees that
under the lock and does nothing.
"""

import asyncio
import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from pyoco_server.adapters.isolation.errors import fit_to_raise
from pyoco_server.adapters.isolation.slots import FairSlots

T = TypeVar("T")


class _Stage(Enum):
    HANDED_OVER = auto()  # in the worker's inbox
    RUNNING = auto()
    ENDED = auto()
    DROPPED = auto()  # cancelled before it ran: never runs
    ABANDONED = auto()  # cancelled while it ran: nobody waits for it


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call led to. An exception travels as a value, for a future cannot hold a StopIteration."""

    value: Any = None
    error: BaseException | None = None


class _Job:
    __slots__ = ("call", "future", "loop", "stage", "worker")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.loop = loop
        self.future: asyncio.Future[_Outcome] = loop.create_future()
        self.stage = _Stage.HANDED_OVER
        self.worker: _Worker | None = None

    def settle(self, outcome: _Outcome) -> None:
        """In the event loop: wake whoever waits, if somebody still does."""
        if not self.future.done():
            self.future.set_result(outcome)


class ThreadSlots:
    """Runs plain callables in at most ``limit`` daemon threads. Belongs to one event loop.

    ``name`` begins the names of the threads; a worker ends after ``idle_sec`` without a call.
    """

    def __init__(self, limit: int, *, name: str, idle_sec: float = 5.0) -> None:
        self._slots = FairSlots(limit)
        self._name = name
        self._numbers = itertools.count(1)
        self._pool = _Pool(idle_sec)

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

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call in a thread, with the caller's context variables, as soon as a slot is free.

        Returns or raises what the call does, but for exceptions that would steer the event loop: see
        ``ControlFlowError``. Cancelled while it waits, the call never runs; cancelled while it runs, it is abandoned.
        Raises ``SlotsClosedError`` if ``close`` came first.
        """
        await self._slots.acquire()
        try:
            outcome = await self._outcome(call)
        finally:
            self._slots.release()
        if outcome.error is None:
            value: T = outcome.value
            return value
        try:
            raise fit_to_raise(outcome.error)
        finally:
            del outcome  # or the traceback of the error and this frame would hold each other

    async def close(self, timeout_sec: float) -> int:
        """Take no more calls and wait for the running ones; returns how many are still running after the limit.

        Those are left alone: whoever waits for one may go on waiting, or cancel and so abandon it.
        """
        self._slots.close()
        self._pool.close()
        await self._slots.drained(timeout_sec)
        return self._slots.in_use

    async def _outcome(self, call: Callable[[], T]) -> _Outcome:
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(call), asyncio.get_running_loop())
        worker = self._pool.take_idle() or self._new_worker()
        job.worker = worker
        worker.inbox.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            self._pool.give_up(job)
            raise

    def _new_worker(self) -> "_Worker":
        return _Worker(self._pool, f"{self._name}-{next(self._numbers)}")


class _Pool:
    """The idle workers and the stages of their jobs: all that the event loop and the workers share."""

    def __init__(self, idle_sec: float) -> None:
        self.idle_sec = idle_sec
        self.abandoned = 0
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._closed = False

    def take_idle(self) -> "_Worker | None":
        """The worker that was busy last: it is warmest, and those less needed get to their idle time-out."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def give_up(self, job: _Job) -> None:
        """Nobody waits for the job any more."""
        with self._lock:
            if job.stage is _Stage.HANDED_OVER:
                job.stage = _Stage.DROPPED
                # The worker is free for others now; it will find the dropped job in its inbox first and skip it.
                if job.worker is not None:
                    self._make_idle(job.worker)
            elif job.stage is _Stage.RUNNING:
                job.stage = _Stage.ABANDONED
                self.abandoned += 1

    def begin(self, job: _Job) -> bool:
        """Whether the job is to be run."""
        with self._lock:
            if job.stage is _Stage.DROPPED:
                return False
            job.stage = _Stage.RUNNING
            return True

    def end(self, job: _Job, worker: "_Worker") -> bool:
        """The job's call has ended; whether its worker still belongs to the pool."""
        with self._lock:
            if job.stage is _Stage.ABANDONED:
                self.abandoned -= 1
                return False  # another worker has taken its place
            job.stage = _Stage.ENDED
            self._make_idle(worker)
            return True

    def leave(self, worker: "_Worker") -> bool:
        """Whether the worker may end; not if a job is on its way to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def close(self) -> None:
        """End the idle workers now and the others after their call."""
        with self._lock:
            self._closed = True
            for worker in self._idle:
                worker.inbox.put(None)
            self._idle.clear()

    def _make_idle(self, worker: "_Worker") -> None:
        if self._closed:
            worker.inbox.put(None)
        else:
            self._idle.append(worker)


class _Worker:
    """A thread that runs the jobs of its inbox until it gets None, was idle for too long, or was abandoned."""

    def __init__(self, pool: _Pool, name: str) -> None:
        self.inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self._pool = pool
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self.inbox.get(timeout=self._pool.idle_sec)
            except Empty:
                if self._pool.leave(self):
                    return
                continue
            if job is None or (self._pool.begin(job) and not self._perform(job)):
                return
            del job  # an idle worker must not keep the last call's objects alive

    def _perform(self, job: _Job) -> bool:
        outcome = _outcome_of(job.call)
        if not self._pool.end(job, self):
            return False
        # Nobody listens any more if the loop was closed over a running call; there is nobody to tell either.
        with contextlib.suppress(RuntimeError):
            job.loop.call_soon_threadsafe(job.settle, outcome)
        return True


def _outcome_of(call: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(value=call())
    except BaseException as error:  # noqa: BLE001 (whatever the user's code raises belongs to the task that waits)
        return _Outcome(error=error)

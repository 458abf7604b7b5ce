"""The worker's loops: slots that pull and handle jobs, heartbeats, wheel sync, and the stop.

Each slot pulls one job, handles it (``job_handler.py``), settles it (``settlement.py``) and pulls the next. There are
never more pulls than free slots, so a delivered job is handled at once. With more tags than free slots the slots take
turns at the tags. A job that may kill the process, and wheel sync, keep the slots from pulling (``slot_gate.py``).

When a worker is killed during a task, its heartbeats and its "in progress" reports stop. The queue delivers the job
again after the ack wait, to any worker of the tag. A gateway that learns from NATS that the process has no connection
any more returns its jobs earlier, by a NAK in its place (``app/recovery/dead_workers.py``). The next worker reads the
log and resumes the run from it: ``job_handler.py``.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from pyoco_server.app.ports import Clock, DeadLetters, Delivery, UnavailableError, WorkQueue
from pyoco_server.app.runs.job import InvalidJobError, decode_job
from pyoco_server.logs import log_context, log_error
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.options import WorkerOptions
from pyoco_server.worker.quarantined_job import recognised
from pyoco_server.worker.registration import WorkerRegistration
from pyoco_server.worker.settlement import Nak, Settler

_log = logging.getLogger(__name__)

_AWAY_SEC: Final = 0.5
"""Between two attempts while the queue is unavailable."""

_BEATS: Final = 32
"""How many heartbeats of runs are written at the same time."""

_PULLS: Final = 32
"""How many slots request a job at a time, or one for each tag if those are more.

A request costs the same whether or not it brings a job, and is repeated every second. A worker may have thousands of
free slots; if each had a request out, requesting would be all it does. A slot that got a job makes room for the next.
"""

_WATCH_SEC: Final = 5.0

_SLICE_SEC: Final = 0.2
_SHORTEST_PULL_SEC: Final = 0.05
"""How long one request for a job may wait while several tags take turns."""

T = TypeVar("T")


class CodeSync(Protocol):
    """Changes the code of the process while no slot is inside the gate; it keeps slots out before its first look."""

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        ...

    async def look_if_due(self) -> None:
        """Look once if the last look is long ago."""
        ...


class TagScheduler:
    """Chooses the tag that the fewest slots pull from, and of those the one chosen longest ago."""

    def __init__(self, tags: Sequence[str]) -> None:
        self._waiting = dict.fromkeys(tags, 0)
        self._last = dict.fromkeys(tags, 0)
        self._turn = 0

    def take(self) -> str:
        """Return the tag to pull from now."""
        tag = min(self._waiting, key=lambda name: (self._waiting[name], self._last[name]))
        self._turn += 1
        self._last[tag] = self._turn
        self._waiting[tag] += 1
        return tag

    def give_back(self, tag: str) -> None:
        """Note that the pull from the tag has ended."""
        self._waiting[tag] -= 1


class Worker:
    """One worker process; use once."""

    def __init__(
        self,
        *,
        queue: WorkQueue,
        registration: WorkerRegistration,
        dead_letters: DeadLetters,
        handler: JobHandler,
        clock: Clock,
        options: WorkerOptions,
        code_sync: CodeSync | None = None,
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._clock = clock
        self._options = options
        self._code_sync = code_sync
        self._gate = handler.gate
        self._settler = Settler(dead_letters, queue, options.worker_id)
        self._tags = TagScheduler(options.tags)
        self._pulls = asyncio.Semaphore(max(_PULLS, len(options.tags)))
        self._idle = 0
        self._cut_short: set[asyncio.Timeout] = set()
        self._stopping = asyncio.Event()
        self._stopped_now = asyncio.Event()
        self._registration = registration
        self.handled = 0

    def stop(self) -> None:
        """Pull no more jobs, and finish those that run; a second call hands them back at once."""
        if self._stopping.is_set():
            self._stopped_now.set()
            return
        self._stopping.set()
        for limit in self._cut_short:
            limit.reschedule(0.0)
        self._gate.close()

    async def run(self) -> None:
        """Work until :meth:`stop`."""
        await self._prepare_patiently()
        side = [
            _named("heartbeats of runs", self._beat()),
            _named("in progress", self._report_progress()),
            _named("registration", self._registration.keep()),
            _named("watchdog", self._watch()),
            *self._synchronising(),
        ]
        slots = [_named(f"slot {number}", self._slot()) for number in range(self._options.concurrency)]
        stopping = _named("stopping", self._wait_for_stop(slots))
        try:
            await _until_one_dies([*side, *slots], stopping)
        finally:
            await _end([*slots, *side, stopping])
            await self._report_stopped()

    async def run_once(self) -> bool:
        """Handle one job if there is one; False if there was none in time."""
        await self._prepare()
        side = [
            _named("heartbeats of runs", self._beat()),
            _named("in progress", self._report_progress()),
            *self._synchronising(),
        ]
        once = _named("one job", self._one_job())
        over = _named("stopping", self._until_done_or_stopped(once))
        try:
            await _until_one_dies([*side, once], over)
            return once.done() and not once.cancelled() and bool(once.result())
        finally:
            await _end([once, *side, over])
            await self._report_stopped()

    @contextlib.asynccontextmanager
    async def on_request(self) -> AsyncIterator[None]:
        """Keep the worker registered and its heartbeats going while jobs are handled by ``handle_next``."""
        await self._prepare()
        side = [
            _named("heartbeats of runs", self._beat()),
            _named("in progress", self._report_progress()),
            _named("registration", self._registration.keep()),
        ]
        try:
            yield
        finally:
            await _end(side)
            await self._report_stopped()

    async def handle_next(self, timeout_sec: float) -> str | None:
        """Handle one job if one comes in time, and return its run's id; None if there was no job, or an invalid one.

        Only within ``on_request``.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_sec
        while True:
            if self._code_sync is not None:
                await self._code_sync.look_if_due()
            async with self._gate.shared():
                for tag in self._options.tags:
                    left = max(ends_at - loop.time(), 0.0) / len(self._options.tags)
                    delivery = await self._pull(tag, min(_SLICE_SEC, max(left, _SHORTEST_PULL_SEC)))
                    if delivery is not None:
                        await self._handle(delivery)
                        return _run_of(delivery)
            if loop.time() >= ends_at:
                return None

    def _synchronising(self) -> list[asyncio.Task[Any]]:
        return [] if self._code_sync is None else [_named("code sync", self._code_sync.run())]

    async def _prepare_patiently(self) -> None:
        """Wait for a cluster that has just lost its leader, or is only starting; log it once."""
        is_logged = False
        while not self._stopping.is_set():
            try:
                return await self._prepare()
            except UnavailableError as error:
                if not is_logged:
                    log_error(
                        _log, "ERR-PYOCO-0003", action="queue_awaited", exc=error, level=logging.WARNING, one_line=True
                    )
                is_logged = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AWAY_SEC):
                    await self._stopping.wait()
        return None

    async def _prepare(self) -> None:
        for tag in self._options.tags:
            await self._queue.prepare(tag)
        await self._registration.announce()
        _log.info(
            "worker '%s' takes jobs for %s",
            self._options.worker_id,
            ", ".join(self._options.tags),
            extra={"action": "worker_started", "worker_id": self._options.worker_id},
        )

    # --- Slots -------------------------------------------------------------------------------------------------------

    async def _slot(self) -> None:
        while not self._stopping.is_set():
            await self._pulls.acquire()  # before the gate: a slot that only waits to pull is not inside
            is_pulling = True
            try:
                async with self._gate.shared():
                    delivery = None if self._stopping.is_set() else await self._next()
                    self._pulls.release()
                    is_pulling = False
                    if delivery is not None and self._stopping.is_set():  # it came at the moment of the stop
                        await self._settler.settle(delivery, Nak(0.0), self._clock.now().timestamp())
                    elif delivery is not None:
                        await self._handle(delivery)
            finally:
                if is_pulling:
                    self._pulls.release()

    async def _next(self) -> Delivery | None:
        """The next job of the tag whose turn it is, if there is one in time."""
        self._idle += 1
        try:
            tag = self._tags.take()
            try:
                scarce = self._idle < len(self._options.tags)
                timeout = min(0.2, self._options.poll_timeout_sec) if scarce else self._options.poll_timeout_sec
                return await self._pull(tag, timeout)
            finally:
                self._tags.give_back(tag)
        finally:
            self._idle -= 1

    async def _one_job(self) -> bool:
        async with self._gate.shared():
            for tag in self._options.tags:
                delivery = await self._pull(tag, self._options.poll_timeout_sec / len(self._options.tags))
                if delivery is not None:
                    await self._handle(delivery)
                    return True
        return False

    async def _pull(self, tag: str, timeout_sec: float) -> Delivery | None:
        try:
            return await self._unless_stopped(lambda: self._queue.pull(tag, timeout_sec=timeout_sec))
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="pull_failed", exc=error, level=logging.WARNING, tag=tag)
            await asyncio.sleep(_AWAY_SEC)
            return None

    async def _unless_stopped(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of the work, done in the slot's own task; None if a stop cuts it short."""
        if self._stopping.is_set():
            return None
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._cut_short.add(limit)
                return await work()
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            self._cut_short.discard(limit)

    async def _handle(self, delivery: Delivery) -> None:
        with log_context(worker_id=self._options.worker_id, tag=delivery.tag):
            handled = await self._handler.handle(recognised(delivery, self._queue))
            await self._settler.settle(handled.delivery, handled.settlement, self._clock.now().timestamp())
        self.handled += 1

    # --- Heartbeats --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._options.run_heartbeat_interval_sec)
            running = [*self._handler.running.values()]
            for first in range(0, len(running), _BEATS):  # many at once would keep the ends of runs waiting
                await asyncio.gather(*(driven.beat() for driven in running[first : first + _BEATS]))

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(self._options.ack_progress_interval_sec)
            reports = [driven.report_progress() for driven in self._handler.running.values()]
            await asyncio.gather(self._gate.report_progress(), *reports)

    async def _watch(self) -> None:
        """Notice pulls that stay silent although jobs wait, whatever the reason, and make them request again."""
        while True:
            await asyncio.sleep(_WATCH_SEC)
            for tag in self._options.tags:
                try:
                    if await self._queue.stalled(tag):
                        _log.warning(
                            "pulls are silent although jobs wait", extra={"action": "pull_stalled", "tag": tag}
                        )
                        await self._queue.rebind(tag)
                except UnavailableError:
                    continue  # the pulls themselves say so

    # --- The end -----------------------------------------------------------------------------------------------------

    async def _until_done_or_stopped(self, once: asyncio.Task[bool]) -> None:
        stopping = _named("stopping", self._wait_for_stop([once]))
        try:
            await asyncio.wait({once, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _wait_for_stop(self, slots: Sequence[asyncio.Task[Any]]) -> None:
        """Return after a stop, when all slots have ended or the stop timeout has passed."""
        await self._stopping.wait()
        at_once = _named("at once", self._stopped_now.wait())
        at_rest = asyncio.gather(*slots)
        try:
            await asyncio.wait(
                {at_once, at_rest}, timeout=self._options.stop_timeout_sec, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            at_once.cancel()
            at_rest.cancel()
            at_rest.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # the slots raise it, too

    async def _report_stopped(self) -> None:
        try:
            await self._registration.stopped("graceful_shutdown")
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="good_bye_untold", exc=error, level=logging.WARNING)
        _log.info(
            "worker '%s' has stopped after %d jobs",
            self._options.worker_id,
            self.handled,
            extra={"action": "worker_stopped", "worker_id": self._options.worker_id},
        )


def _run_of(delivery: Delivery) -> str | None:
    """The run a job is for; None if it is no job."""
    try:
        return decode_job(delivery.body).run_id
    except InvalidJobError:
        return None


def _named(name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(work, name=f"worker: {name}")


async def _until_one_dies(tasks: Sequence[asyncio.Task[Any]], stopping: asyncio.Task[Any]) -> None:
    """Wait for the stop; a loop that dies takes the worker with it, since a worker without it would only seem alive."""
    side = asyncio.gather(*tasks)
    try:
        await asyncio.wait({side, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if side.done() and not stopping.done():  # slots that were made to stop have not died
            side.result()
    finally:
        side.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await side


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

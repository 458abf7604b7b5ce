"""The worker's loops: slots that pull and handle jobs, signs of life, and the way to a good end.

Each slot pulls one job, sees it through, and pulls the next. There are never more pulls out than slots are free, so a
job that is delivered is begun at once; and never more than a few (:mod:`.asking`). With more tags than free slots the
slots take turns at the tags. While a job that may take the process with it is to be alone here, nobody pulls.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from pyoco_server.app.jobs import InvalidJobError, decode_job
from pyoco_server.app.ports import Clock, DeadLetters, Delivery, UnavailableError, WorkQueue
from pyoco_server.logs import log_context, log_error
from pyoco_server.worker.asking import Asking
from pyoco_server.worker.dispositions import Nak, Settler
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.lone_jobs import told_apart
from pyoco_server.worker.options import WorkerOptions
from pyoco_server.worker.presence import Presence
from pyoco_server.worker.turns import Turns

_log = logging.getLogger(__name__)

_AWAY_SEC: Final = 0.5
"""Between two looks whether the queue is back."""

_BEATS: Final = 32
"""How many runs give a sign of life at the same time."""

_PULLS: Final = 32
"""How many requests for jobs are out at a time, or one for each tag if those are more."""

_WATCH_SEC: Final = 5.0

_SLICE_SEC: Final = 0.2
_SHORTEST_PULL_SEC: Final = 0.05
"""How long one request for a job may wait while several tags take turns."""

T = TypeVar("T")


class Gate(Protocol):
    """What every slot passes on its way to a job and back, so that somebody knows when none is out."""

    async def before_pull(self) -> None:
        """The slot is about to ask for a job; it is out when this returns."""
        ...

    def back(self) -> None:
        """The slot is in again: it has no request out and no job in hand."""
        ...


class Worker:
    """One worker process; use once."""

    def __init__(
        self,
        *,
        queue: WorkQueue,
        presence: Presence,
        dead_letters: DeadLetters,
        handler: JobHandler,
        clock: Clock,
        options: WorkerOptions,
        gate: Gate | None = None,
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._clock = clock
        self._options = options
        self._gate = gate
        self._settler = Settler(dead_letters, queue, options.worker_id)
        self._turns = Turns(options.tags)
        self._asking = Asking(max(_PULLS, len(options.tags)))
        self._idle = 0
        self._cut_short: set[asyncio.Timeout] = set()
        self._stopping = asyncio.Event()
        self._stopped_now = asyncio.Event()
        self._presence = presence
        self.handled = 0

    def stop(self) -> None:
        """Take no more jobs, and finish those in hand; a second call hands them back at once."""
        if self._stopping.is_set():
            self._stopped_now.set()
            return
        self._stopping.set()
        for limit in self._cut_short:
            limit.reschedule(0.0)
        self._handler.quarantine.close()

    async def run(self) -> None:
        """Work until told to stop."""
        await self._prepare_patiently()
        side = [
            _named("heartbeats of runs", self._beat()),
            _named("in progress", self._say_in_progress()),
            _named("presence", self._presence.keep()),
            _named("watchdog", self._watch()),
        ]
        slots = [_named(f"slot {number}", self._slot()) for number in range(self._options.concurrency)]
        stopping = _named("stopping", self._wait_for_stop(slots))
        try:
            await _until_one_dies([*side, *slots], stopping)
        finally:
            await _end([*slots, *side, stopping])
            await self._say_good_bye()

    async def run_once(self) -> bool:
        """Handle one job if there is one; False if there was none in time."""
        await self._prepare()
        side = [_named("heartbeats of runs", self._beat()), _named("in progress", self._say_in_progress())]
        once = _named("one job", self._one_job())
        over = _named("stopping", self._until_done_or_stopped(once))
        try:
            await _until_one_dies([*side, once], over)
            return once.done() and not once.cancelled() and bool(once.result())
        finally:
            await _end([once, *side, over])
            await self._say_good_bye()

    @contextlib.asynccontextmanager
    async def on_request(self) -> AsyncIterator[None]:
        """Keep the worker registered and its signs of life going while jobs are handled by ``handle_next``."""
        await self._prepare()
        side = [
            _named("heartbeats of runs", self._beat()),
            _named("in progress", self._say_in_progress()),
            _named("presence", self._presence.keep()),
        ]
        try:
            yield
        finally:
            await _end(side)
            await self._say_good_bye()

    async def handle_next(self, timeout_sec: float) -> str | None:
        """Handle one job if one comes in time, and return its run's id; None if there was no job, or an invalid one.

        Only within ``on_request``.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_sec
        while True:
            for tag in self._options.tags:
                left = max(ends_at - loop.time(), 0.0) / len(self._options.tags)
                delivery = await self._pull(tag, min(_SLICE_SEC, max(left, _SHORTEST_PULL_SEC)))
                if delivery is not None:
                    try:
                        await self._handle(delivery)
                    finally:
                        self._come_back()
                    return _run_of(delivery)
            self._come_back()
            if loop.time() >= ends_at:
                return None

    def _come_back(self) -> None:
        """Say that no request and no job is out any more."""
        if self._gate is not None:
            self._gate.back()

    async def _prepare_patiently(self) -> None:
        """A cluster that has just lost its leader, or is only starting, is waited for; told once."""
        is_told = False
        while not self._stopping.is_set():
            try:
                return await self._prepare()
            except UnavailableError as error:
                if not is_told:
                    log_error(
                        _log, "ERR-PYOCO-0003", action="queue_awaited", exc=error, level=logging.WARNING, one_line=True
                    )
                is_told = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AWAY_SEC):
                    await self._stopping.wait()
        return None

    async def _prepare(self) -> None:
        for tag in self._options.tags:
            await self._queue.prepare(tag)
        await self._presence.announce()
        _log.info(
            "worker '%s' takes jobs for %s",
            self._options.worker_id,
            ", ".join(self._options.tags),
            extra={"action": "worker_started", "worker_id": self._options.worker_id},
        )

    # --- Slots -------------------------------------------------------------------------------------------------------

    async def _slot(self) -> None:
        while not self._stopping.is_set():
            async with self._asking.turn() as turn, self._handler.quarantine.company():
                try:
                    delivery = None if self._stopping.is_set() else await self._next()
                    turn.over()
                    if delivery is not None and self._stopping.is_set():  # it came in the moment we were told to stop
                        await self._settler.settle(delivery, Nak(0.0), self._clock.now().timestamp())
                    elif delivery is not None:
                        await self._handle(delivery)
                finally:
                    self._come_back()

    async def _next(self) -> Delivery | None:
        """The next job of the tag whose turn it is, if there is one in time."""
        self._idle += 1
        try:
            tag = self._turns.take()
            try:
                scarce = self._idle < len(self._options.tags)
                timeout = min(0.2, self._options.poll_timeout_sec) if scarce else self._options.poll_timeout_sec
                return await self._pull(tag, timeout)
            finally:
                self._turns.give_back(tag)
        finally:
            self._idle -= 1

    async def _one_job(self) -> bool:
        for tag in self._options.tags:
            delivery = await self._pull(tag, self._options.poll_timeout_sec / len(self._options.tags))
            if delivery is not None:
                await self._handle(delivery)
                return True
        return False

    async def _pull(self, tag: str, timeout_sec: float) -> Delivery | None:
        try:
            return await self._unless_stopped(lambda: self._prepare_and_pull(tag, timeout_sec))
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="pull_failed", exc=error, level=logging.WARNING, tag=tag)
            await asyncio.sleep(_AWAY_SEC)
            return None

    async def _prepare_and_pull(self, tag: str, timeout_sec: float) -> Delivery | None:
        if self._gate is not None:
            await self._gate.before_pull()
        return await self._queue.pull(tag, timeout_sec=timeout_sec)

    async def _unless_stopped(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What comes of the work; None if the worker is told to stop meanwhile, which cuts it short.

        It is done in the slot's own task: that is one less for every job, and the hook may ask whose turn it is.
        """
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
            handled = await self._handler.handle(told_apart(delivery, self._queue))
            await self._settler.settle(handled.delivery, handled.disposition, self._clock.now().timestamp())
        self.handled += 1

    # --- Signs of life -----------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._options.run_heartbeat_interval_sec)
            running = [*self._handler.running.values()]
            for first in range(0, len(running), _BEATS):  # many at once would keep the ends of runs waiting
                await asyncio.gather(*(driven.beat() for driven in running[first : first + _BEATS]))

    async def _say_in_progress(self) -> None:
        while True:
            await asyncio.sleep(self._options.ack_progress_interval_sec)
            at_it = [driven.still_at_it() for driven in self._handler.running.values()]
            await asyncio.gather(self._handler.quarantine.still_waiting(), *at_it)

    async def _watch(self) -> None:
        """Notice pulls that stay silent although jobs wait, whatever the reason, and let them ask anew."""
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
        """Over when all slots have come to rest after being told to, or have had their time."""
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
            at_rest.add_done_callback(
                lambda ended: ended.cancelled() or ended.exception()
            )  # the slots tell it themselves

    async def _say_good_bye(self) -> None:
        try:
            await self._presence.stopped("graceful_shutdown")
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

"""Rebuilds what is derived from the log, after it may have been lost: snapshots, jobs, and with them the index.

A power loss, a deleted bucket or a process that died leaves runs whose snapshot or job is missing. In normal operation
nothing is compared: a gateway sees every append, and notes it (:mod:`pyoco_server.app.snapshots.lag`). The comparison
runs at the start, unless the stores are exactly as a gateway left them that had found no difference; and after an
outage. It reads the names of all logs and snapshots and the queued jobs, and only the logs of runs that lack something.
"""

import asyncio
import collections
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from pyoco_server.app.ports import Clock, RunFilter, RunIndex, RunQuery, UnavailableError
from pyoco_server.app.ports.listing import ListedLog, StoreListing
from pyoco_server.app.recovery.foreign_writes import ForeignWrites
from pyoco_server.app.runs.run_log import FRESH_SEC, RunLog, RunNotFoundError
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.app.snapshots.status import RunStatus, has_owner
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

AT_ONCE: Final = 64
_CHUNK: Final = 500
_PAGE: Final = 200
_OPEN: Final = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLING)
PAUSE_SEC: Final = 600.0
_RETRY_SEC: Final = 1.0
"""Before the next try when the stores could not be reached."""


class _QueuedRun(msgspec.Struct):
    run_id: str = ""


_JOB: Final = msgspec.json.Decoder(_QueuedRun)


class Rebuild:
    """Compares the log with what is derived from it, and restores every run that lacks something."""

    def __init__(
        self,
        *,
        run_log: RunLog,
        index: RunIndex,
        listing: StoreListing,
        lagging: SnapshotLag,
        foreign: ForeignWrites,
        clock: Clock,
        reconnects: Callable[[], int] = lambda: 0,
        pause_sec: float = PAUSE_SEC,
        fresh_sec: float = FRESH_SEC,
    ) -> None:
        """``reconnects``: how many times the connection broke. ``pause_sec``: the least time between two comparisons.

        ``fresh_sec``: an owner that wrote a heartbeat no longer ago is alive.
        """
        self._run_log = run_log
        self._index = index
        self._listing = listing
        self._lagging = lagging
        self._foreign = foreign
        self._clock = clock
        self._reconnects = reconnects
        self._seen_reconnects = reconnects()
        self._pause_sec = pause_sec
        self._fresh_sec = fresh_sec
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._ended_at = -math.inf

    def request(self) -> None:
        """Have the stores compared: this gateway may have missed something."""
        self._wanted.set()

    def notice_reconnects(self) -> None:
        """Have the stores compared if the connection broke since: NATS may have lost something."""
        if self._reconnects() != self._seen_reconnects:
            self._seen_reconnects = self._reconnects()
            self.request()

    async def run(self) -> None:
        """Compare when it is needed, until cancelled."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(max(self._ended_at + self._pause_sec - self._now(), 0.0))
            try:
                await self.compare()
            except UnavailableError:
                await asyncio.sleep(_RETRY_SEC)
            except Exception as error:  # noqa: BLE001 logged, and tried again: this loop must not end
                log_error(_log, "ERR-PYOCO-0106", action="rebuild_failed", exc=error)
                self._ended_at = self._now()

    async def compare(self, *, is_forced: bool = False) -> None:
        """Compare the stores, unless they are as a comparison left them; UnavailableError: not finished.

        If it ``is_forced``, compare in any case.
        """
        self._wanted.clear()
        try:
            if is_forced or await self._index.compared() != await self._listing.state():
                await self._restore_all()
        except BaseException:
            self._wanted.set()
            raise

    async def note_state(self) -> None:
        """Store that nothing is missing, if that is so: call it when this gateway stops to see appends."""
        self.notice_reconnects()
        if not self._wanted.is_set() and self._lagging.is_empty:
            await self._index.note_compared(await self._listing.state())

    async def _restore_all(self) -> None:
        began, queued = self._now(), await self._queued_runs()
        owned = await self._restore_open(queued)
        missing = logs = 0
        async for page in self._listing.logs():
            logs += len(page)
            for start in range(0, len(page), _CHUNK):
                missing += await self._restore_missing(page[start : start + _CHUNK], queued)
        if owned:  # their owners may have died a moment ago, together with the machine
            await self._clock.sleep(self._fresh_sec)
            await self._restore(owned, await self._queued_runs())
        self._ended_at = self._now()
        _log.info(
            "compared %d logs with their snapshots and jobs: %d runs had no snapshot, in %.1f s",
            logs,
            missing,
            self._ended_at - began,
            extra={"action": "stores_compared", "logs": logs, "restored": missing},
        )

    async def _queued_runs(self) -> set[str]:
        """Return the runs that have a job in the queue."""
        return {run_id async for bodies in self._listing.jobs() for run_id in _runs_of(bodies)}

    async def _restore_open(self, queued: Collection[str]) -> list[str]:
        """Restore the runs that have not ended and have no job; return those that had an owner a moment ago."""
        owned: list[str] = []
        for status in _OPEN:
            query = RunQuery(status=status.value, limit=_PAGE)
            while found := await self._index.page(query):
                without = [run.summary for run in found if run.cursor.run_id not in queued]
                left = [each["run_id"] for each in without if self._is_owned(each)]
                await self._restore([each["run_id"] for each in without if each["run_id"] not in left], queued)
                owned += left
                query = msgspec.structs.replace(query, before=found[-1].cursor)
        return owned

    def _is_owned(self, summary: JsonObject) -> bool:
        return has_owner(summary, now=self._now(), fresh_sec=self._fresh_sec)

    async def _restore_missing(self, logs: Sequence[ListedLog], queued: Collection[str]) -> int:
        """Restore the runs that have a log and no snapshot, or are not in the index; return how many."""
        unknown = set(await self._index.unknown([log.run_id for log in logs]))
        missing = [log.run_id for log in logs if not log.has_snapshot or log.run_id in unknown]
        await self._restore(missing, queued)
        begun = [log.run_id for log in logs if log.commits == 1 and log.run_id not in unknown]
        for run in await self._index.among(begun, RunFilter()) if begun else ():
            if run.summary.get("status") != RunStatus.PENDING:  # another program changed its snapshot, not its log
                self._foreign.note(run.cursor.run_id)
        return len(missing)

    async def _restore(self, run_ids: Sequence[str], queued: Collection[str]) -> None:
        await _each(run_ids, lambda run_id: self._restore_one(run_id, queued))

    async def _restore_one(self, run_id: str, queued: Collection[str]) -> None:
        """Restore a run; one that cannot be restored is logged, so that the others are."""
        try:
            await self._run_log.restore(run_id, queued=queued)
        except (RunNotFoundError, InvalidInputError):
            return  # another program's snapshot, which has no log, or whose id no run can have
        except UnavailableError:
            raise
        except PyocoServerError as error:
            log_error(_log, "ERR-PYOCO-0106", action="run_not_restored", exc=error, run_id=run_id)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _runs_of(bodies: Iterable[bytes]) -> Iterable[str]:
    for body in bodies:
        try:
            yield _JOB.decode(body).run_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # a worker publishes a dead letter for it


async def _each(run_ids: Sequence[str], do: Callable[[str], Awaitable[None]]) -> None:
    """Call ``do`` for all, several at a time; after an error no other call begins, and it is raised."""
    todo = collections.deque(run_ids)

    async def work() -> None:
        while todo:
            try:
                await do(todo.popleft())
            except BaseException:
                todo.clear()
                raise

    results = await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(run_ids)))), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result

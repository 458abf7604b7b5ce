"""Waking runs: somebody resumed a wait, and a worker must hear of it.

The log has the resume, so a wake-up that is lost costs nothing but time: a sweep finds the run in the end. Nobody is to
wait for that. So a wake-up the queue did not confirm is queued again in the background; its id tells the queue that it
is the same one.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from pyoco_server.app.jobs import Job, encode_job
from pyoco_server.app.ports import Clock, TooLargeError, UnavailableError, WorkQueue

_log = logging.getLogger(__name__)

MOST: Final = 1_000
"""How many wake-ups are under way at most; what is beyond is tried once, and then left to the sweep."""
PATIENCE: Final = timedelta(seconds=100)
"""By then a sweep takes care of the run; and a queue may not know much longer that it had the same job before."""
_FIRST_PAUSE_SEC: Final = 0.1
_LONGEST_PAUSE_SEC: Final = 5.0


def dedup_id(job: Job) -> str:
    """The same for the same reason to wake a run: where its log ended."""
    held = "" if job.held_since is None else f":held:{job.held_since}"
    return f"{job.run_id}:{job.log_position}{':rescue' if job.rescue else ''}{held}"


class WakeUps:
    """Queues wake-ups, and does not leave it at one try."""

    def __init__(self, queue: WorkQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, job: Job) -> None:
        """Queue a wake-up; UnavailableError if nobody knows whether it is there. Then it is tried again.

        Whoever waits for this waits for the first try only, and may give up earlier without giving up the others.
        """
        try:
            await self.send_once(job)
        except (UnavailableError, asyncio.CancelledError):
            self._try_again(job)
            raise

    async def send_once(self, job: Job) -> None:
        """Queue a job for a run; UnavailableError if nobody knows whether it is there, and whoever asks tries again."""
        await self._queue.publish(job.tag, encode_job(job), dedup_id=dedup_id(job))

    def _try_again(self, job: Job) -> None:
        if len(self._under_way) < MOST:
            sending = asyncio.create_task(self._until_stored(job), name=f"{job.run_id} woken")
            self._under_way.add(sending)
            sending.add_done_callback(self._under_way.discard)

    async def _until_stored(self, job: Job) -> None:
        until, pause_sec = self._clock.now() + PATIENCE, _FIRST_PAUSE_SEC
        while self._clock.now() < until:
            await self._clock.sleep(pause_sec)
            pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)
            try:
                await self.send_once(job)
            except UnavailableError:
                continue
            except TooLargeError:
                break  # it would be refused again; the sweep reports the run
            return
        extra = {"action": "wake_left_to_sweep", "run_id": job.run_id}
        _log.warning("no worker could be told that a run was resumed", extra=extra)

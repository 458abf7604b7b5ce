"""Lists the logs and the jobs of the stores in memory."""

from collections.abc import AsyncIterator, Sequence

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.app.ports.listing import ListedLog


class MemoryListing:
    """Lists everything as one page. The log in memory does not keep commits apart, so its events are counted."""

    def __init__(self, log: MemoryEventLog, snapshots: MemorySnapshots, queue: MemoryWorkQueue) -> None:
        self._log = log
        self._snapshots = snapshots
        self._queue = queue

    async def logs(self) -> AsyncIterator[Sequence[ListedLog]]:
        """Yield all logs."""
        counts = self._log.counts()
        if counts:
            keys = self._snapshots.keys()
            yield [ListedLog(run_id, events, run_id in keys) for run_id, events in counts.items()]

    async def jobs(self) -> AsyncIterator[Sequence[bytes]]:
        """Yield all jobs."""
        bodies = [job.body for job in self._queue.jobs()]
        if bodies:
            yield bodies

    async def state(self) -> str:
        """Return the numbers of events, changes of snapshots, snapshots and jobs."""
        feed, queue, events = self._snapshots.state, self._queue, sum(self._log.counts().values())
        return f"{events} {feed.origin}/{feed.last}/{len(self._snapshots.keys())} {queue.published}/{len(queue.jobs())}"

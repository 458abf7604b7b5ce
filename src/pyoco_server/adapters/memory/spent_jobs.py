"""Jobs whose deliveries are used up, in a queue in memory."""

from collections import Counter
from collections.abc import Sequence

from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue, QueuedJob
from pyoco_server.app.ports import Unsubscribe
from pyoco_server.app.ports.work_queue import OnSpent, SpentJob


class MemorySpentJobs:
    """What the queue has put aside; it always knows which is which."""

    def __init__(self, queue: MemoryWorkQueue) -> None:
        self._queue = queue

    async def subscribe(self, on_spent: OnSpent) -> Unsubscribe:
        """Be told when a job's last delivery has come to nothing."""
        self._queue.on_spent.append(on_spent)
        return lambda: self._queue.on_spent.remove(on_spent)

    async def get(self, number: int, times_delivered: int) -> SpentJob | None:
        """The job of which was told; None if somebody took it out."""
        job = self._queue.spent.get(number)
        return None if job is None else _spent(job)._replace(times_delivered=times_delivered)

    async def look(self, limit: int) -> Sequence[SpentJob]:
        """At most so many of a tag."""
        found: list[SpentJob] = []
        seen: Counter[str] = Counter()
        for job in self._queue.spent.values():
            seen[job.tag] += 1
            if seen[job.tag] <= limit:
                found.append(_spent(job))
        return found

    async def remove(self, number: int) -> bool:
        """Take a job out of the queue; False if somebody did already."""
        return self._queue.spent.pop(number, None) is not None


def _spent(job: QueuedJob) -> SpentJob:
    return SpentJob(job.number, job.tag, job.subject, job.body, job.times_delivered)

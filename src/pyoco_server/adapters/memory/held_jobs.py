"""Jobs in workers' hands, in a queue in memory."""

from collections.abc import Collection, Sequence

from pyoco_server.adapters.memory.work_queue import MemoryWorkQueue
from pyoco_server.app.ports.work_queue import HeldJob


class MemoryHeldJobs:
    """What is out."""

    def __init__(self, queue: MemoryWorkQueue) -> None:
        self._queue = queue

    async def look(self, tags: Collection[str]) -> Sequence[HeldJob]:
        """All there are of these tags."""
        return [HeldJob(job.number, job.tag, job.body) for tag in tags for job in self._queue.held(tag)]

    async def give_back(self, job: HeldJob) -> None:
        """Let it come back now."""
        for held in self._queue.held(job.tag):
            if held.number == job.number:
                self._queue.postpone(held, 0.0)

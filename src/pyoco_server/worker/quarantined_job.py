"""Quarantined jobs, which are only run alone in their worker: how one is made, and when its run is to blame.

A job whose deliveries are exhausted, some of them beside other jobs, is replaced by a quarantined job of the same run,
whose deliveries the queue counts from zero. From then on the log judges the run: by the workers that started a task of
it alone and died. A delivery proves little, since a worker that still waits to be alone can be killed by other jobs.
"""

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from pyoco_server.app.ports import Delivery, WorkQueue
from pyoco_server.app.recovery.quarantine_history import QuarantineHistory, history_of, quarantined, starters
from pyoco_server.core import Event

LONE_DEATHS: Final = 1
"""A quarantined run is to blame when so many workers died that had started a task of it alone."""

LONE_DELIVERIES: Final = 5
"""So is one that was delivered so often without starting a task: its flow may kill the worker that loads it."""


class QuarantinedDelivery:
    """A delivery of a quarantined job; it counts the deliveries of the jobs before it, too."""

    def __init__(self, delivery: Delivery, history: QuarantineHistory, queue: WorkQueue) -> None:
        self._delivery = delivery
        self._history = history
        self._queue = queue

    @property
    def tag(self) -> str:
        """The tag it was queued under."""
        return self._delivery.tag

    @property
    def subject(self) -> str:
        """Where it was published."""
        return self._delivery.subject

    @property
    def body(self) -> bytes:
        """The job as it was published."""
        return self._delivery.body

    @property
    def times_delivered(self) -> int:
        """How often the run was delivered, with the jobs before this one."""
        return self._history.deliveries + self._delivery.times_delivered

    def is_to_blame(self, events: Sequence[Event], me: str) -> bool:
        """Return whether the run killed its workers; the one with the mark ``me`` is alive, whatever it started.

        Of those that started it, as many are alive as handed it back (``forgiven``), with or without a task at work.
        """
        started = starters(events[self._history.after :], me)
        times_alone = self._history.alone + self._delivery.times_delivered
        return len(started) >= LONE_DEATHS + self._history.forgiven or times_alone > LONE_DELIVERIES

    def forgive(self) -> None:
        """Count a worker that started the run alone and hands it back alive."""
        self._history = msgspec.structs.replace(self._history, forgiven=self._history.forgiven + 1)

    def next_history(self) -> QuarantineHistory:
        """Return the history for the job that replaces this one; this delivery does not count."""
        alone = self._history.alone + self._delivery.times_delivered - 1
        return msgspec.structs.replace(self._history, deliveries=self.times_delivered, alone=alone)

    @property
    def is_last(self) -> bool:
        """Must the job be replaced now, so that it is not lost? A job with a single delivery is run all the same."""
        return self._delivery.is_last and self._delivery.times_delivered > 1

    async def ack(self) -> None:
        """Take it out of the queue."""
        await self._delivery.ack()

    async def nak(self, delay_sec: float) -> None:
        """Deliver it again; without a delay it is handed back, which does not count against it."""
        if delay_sec > 0:
            await self._delivery.nak(delay_sec)
        else:
            await replace(self, self.next_history(), self._queue)

    async def term(self) -> None:
        """Never deliver it again."""
        await self._delivery.term()

    async def in_progress(self) -> None:
        """Restart the ack wait."""
        await self._delivery.in_progress()


def recognised(delivery: Delivery, queue: WorkQueue) -> Delivery:
    """Return the delivery, as a :class:`QuarantinedDelivery` if its job is quarantined."""
    history = history_of(delivery.body)
    return delivery if history is None else QuarantinedDelivery(delivery, history, queue)


def history_for(delivery: Delivery, events: Sequence[Event]) -> QuarantineHistory:
    """Return the history for the quarantined job that replaces this one; ``events`` are the whole log of the run."""
    if isinstance(delivery, QuarantinedDelivery):
        return delivery.next_history()
    return QuarantineHistory(delivery.times_delivered, after=len(events))


async def replace(delivery: Delivery, history: QuarantineHistory, queue: WorkQueue) -> None:
    """Replace a job by a quarantined one."""
    # A duplicate job does no harm, but one that the queue takes for a duplicate would be lost.
    once = secrets.token_hex(8)
    run_id = msgspec.json.decode(delivery.body)["run_id"]
    await queue.publish(delivery.tag, quarantined(delivery.body, history), dedup_id=f"{run_id}:alone:{once}")
    await delivery.ack()

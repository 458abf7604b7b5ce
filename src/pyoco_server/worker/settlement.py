"""How a job is settled, as a value: :class:`.JobHandler` decides it, :class:`Settler` performs it."""

import logging

import msgspec

from pyoco_server.app.ports import DeadLetters, Delivery, TooLargeError, UnavailableError, WorkQueue
from pyoco_server.app.recovery.dead_letter import DeadLetter, publish_dead_letter
from pyoco_server.app.recovery.quarantine_history import QuarantineHistory
from pyoco_server.logs import log_error
from pyoco_server.worker.hand_over import hand_over
from pyoco_server.worker.quarantined_job import replace

_log = logging.getLogger(__name__)


class Ack(msgspec.Struct, frozen=True):
    """Remove the job: it is done. With a letter, publish that first."""

    letter: DeadLetter | None = None


class Term(msgspec.Struct, frozen=True):
    """Remove a message that is no job, after publishing its dead letter."""

    letter: DeadLetter


class Nak(msgspec.Struct, frozen=True):
    """Deliver the job again after a delay, to any worker."""

    delay_sec: float


class Quarantine(msgspec.Struct, frozen=True):
    """Replace the job by one that is only run alone in its worker."""

    history: QuarantineHistory


class NoAction(msgspec.Struct, frozen=True):
    """Leave the job: another worker has it, or the ack wait returns it."""


class HandOver(msgspec.Struct, frozen=True):
    """Return the job for another worker, which may have the code that this one lacks."""

    instance_id: str
    """The instance of the worker that declines the job."""


Settlement = Ack | Term | Nak | Quarantine | HandOver | NoAction


class Settler:
    """Performs settlements; an error is logged, and the job returns after its ack wait."""

    def __init__(self, dead_letters: DeadLetters, queue: WorkQueue, worker_id: str) -> None:
        self._dead_letters = dead_letters
        self._queue = queue
        self._worker_id = worker_id

    async def settle(self, delivery: Delivery, settlement: Settlement, now: float) -> None:
        """Perform the settlement."""
        try:
            match settlement:
                case Ack(letter):
                    if letter is not None:
                        await self._publish(delivery, letter, now)
                    await delivery.ack()
                case Term(letter):
                    await self._publish(delivery, letter, now)
                    await delivery.term()
                case Nak(delay_sec):
                    await delivery.nak(delay_sec)
                case Quarantine(history):
                    await replace(delivery, history, self._queue)
                case HandOver(instance_id):
                    await hand_over(delivery, instance_id, self._queue)
                case NoAction():  # last of a closed set
                    pass
        except (UnavailableError, TooLargeError) as error:
            log_error(_log, "ERR-PYOCO-0003", action="job_not_settled", exc=error, settlement=type(settlement).__name__)

    async def _publish(self, delivery: Delivery, letter: DeadLetter, now: float) -> None:
        await publish_dead_letter(self._dead_letters, letter, delivery, now=now, worker_id=self._worker_id)

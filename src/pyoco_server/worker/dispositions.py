"""What becomes of a job, as a value: decided in one place, carried out in another."""

import logging

import msgspec

from pyoco_server.app import burying
from pyoco_server.app.burying import DeadReason
from pyoco_server.app.lone_marks import Mark
from pyoco_server.app.ports import DeadLetters, Delivery, TooLargeError, UnavailableError, WorkQueue
from pyoco_server.logs import log_error
from pyoco_server.worker.handing_over import hand_over
from pyoco_server.worker.lone_jobs import replace

_log = logging.getLogger(__name__)


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What a dead letter is to say of the run; the delivery tells the rest."""

    reason: DeadReason
    error: str | None = None
    run_id: str | None = None
    flow_name: str | None = None
    tags: tuple[str, ...] | None = None


class Ack(msgspec.Struct, frozen=True):
    """Done with it."""

    letter: Letter | None = None


class Term(msgspec.Struct, frozen=True):
    """It will never be any good."""

    letter: Letter


class Nak(msgspec.Struct, frozen=True):
    """Later, or somebody else."""

    delay_sec: float


class SetApart(msgspec.Struct, frozen=True):
    """Again, but alone in its worker."""

    mark: Mark


class Leave(msgspec.Struct, frozen=True):
    """Somebody else has it, or it comes back by itself."""


class HandOver(msgspec.Struct, frozen=True):
    """To another worker, which may have the code that this one lacks."""

    instance_id: str
    """Who declines the job."""


Disposition = Ack | Term | Nak | SetApart | HandOver | Leave


class Settler:
    """Carries dispositions out."""

    def __init__(self, dead_letters: DeadLetters, queue: WorkQueue, worker_id: str) -> None:
        self._dead_letters = dead_letters
        self._queue = queue
        self._worker_id = worker_id

    async def settle(self, delivery: Delivery, disposition: Disposition, now: float) -> None:
        """Tell the queue; what it cannot be told, it finds out by the ack wait."""
        try:
            match disposition:
                case Ack(letter):
                    if letter is not None:
                        await self._bury(delivery, letter, now)
                    await delivery.ack()
                case Term(letter):
                    await self._bury(delivery, letter, now)
                    await delivery.term()
                case Nak(delay_sec):
                    await delivery.nak(delay_sec)
                case SetApart(mark):
                    await replace(delivery, mark, self._queue)
                case HandOver(instance_id):
                    await hand_over(delivery, instance_id, self._queue)
                case Leave():  # last of a closed set
                    pass
        except (UnavailableError, TooLargeError) as error:
            log_error(
                _log, "ERR-PYOCO-0003", action="job_not_settled", exc=error, disposition=type(disposition).__name__
            )

    async def _bury(self, delivery: Delivery, letter: Letter, now: float) -> None:
        whole = burying.Letter(
            reason=letter.reason,
            tag=delivery.tag,
            subject=delivery.subject,
            times_delivered=delivery.times_delivered,
            error=letter.error,
            run_id=letter.run_id,
            flow_name=letter.flow_name,
            tags=letter.tags,
            worker_id=self._worker_id,
        )
        try:
            await self._dead_letters.publish(delivery.tag, whole.entry(now))
        except (UnavailableError, TooLargeError) as error:
            log_error(_log, "ERR-PYOCO-0011", action="dead_letter_lost", exc=error, reason=letter.reason.value)

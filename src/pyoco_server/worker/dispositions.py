"""What becomes of a job, as a value: decided in one place, carried out in another."""

import logging
from enum import StrEnum, unique
from typing import Any

import msgspec

from pyoco_server.app.ports import DeadLetters, Delivery, TooLargeError, UnavailableError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)


@unique
class DeadReason(StrEnum):
    """Why there is a dead letter."""

    INVALID_JOB = "invalid_job"
    FLOW_NOT_FOUND = "flow_not_found"
    EXECUTION_ERROR = "execution_error"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter to be written."""

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


class Leave(msgspec.Struct, frozen=True):
    """Somebody else has it, or it comes back by itself."""


Disposition = Ack | Term | Nak | Leave


class Settler:
    """Carries dispositions out."""

    def __init__(self, dead_letters: DeadLetters, worker_id: str) -> None:
        self._dead_letters = dead_letters
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
                case Leave():  # last of a closed set
                    pass
        except UnavailableError as error:
            log_error(
                _log, "ERR-PYOCO-0003", action="job_not_settled", exc=error, disposition=type(disposition).__name__
            )

    async def _bury(self, delivery: Delivery, letter: Letter, now: float) -> None:
        entry: dict[str, Any] = {
            "timestamp": now,
            "reason": letter.reason.value,
            "error": letter.error,
            "run_id": letter.run_id,
            "flow_name": letter.flow_name,
            "tag": delivery.tag,
            "tags": list(letter.tags) if letter.tags is not None else None,
            "worker_id": self._worker_id,
            "num_delivered": delivery.times_delivered,
            "subject": delivery.subject,
        }
        kept = {name: value for name, value in entry.items() if value is not None or name == "error"}
        try:
            await self._dead_letters.publish(delivery.tag, kept)
        except (UnavailableError, TooLargeError) as error:
            log_error(_log, "ERR-PYOCO-0011", action="dead_letter_lost", exc=error, reason=letter.reason.value)

"""Dead letters: their content, as the specification words it, and how they are published; and rejected messages.

Workers and gateways use this: a worker that rejects a job or fails its run, and a gateway for a job that no worker
could settle.
"""

import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum, unique
from typing import Final, NamedTuple, Protocol

import msgspec

from pyoco_server.app.ports import DeadLetters, TooLargeError, UnavailableError
from pyoco_server.app.runs.job import InvalidJobError
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.core import ExecutionState
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.logs import log_error
from pyoco_server.messages import CATALOGUE
from pyoco_server.texts import shortened
from pyoco_server.values.errors import text_of

_log = logging.getLogger(__name__)

DELIVERIES_USED_UP = "DELIVERIES_USED_UP"
"""The error code of a run that ends because the deliveries of its job are exhausted."""


@unique
class DeadReason(StrEnum):
    """The reason of a dead letter."""

    INVALID_JOB = "invalid_job"
    FLOW_NOT_FOUND = "flow_not_found"
    EXECUTION_ERROR = "execution_error"


_ERRORS: Final = {
    DeadReason.INVALID_JOB: CATALOGUE["ERR-PYOCO-0012"],
    DeadReason.FLOW_NOT_FOUND: CATALOGUE["ERR-PYOCO-0006"],
    DeadReason.EXECUTION_ERROR: CATALOGUE["ERR-PYOCO-0007"],
}


class DeadJob(Protocol):
    """What a dead letter says of its job: a :class:`.Delivery`, or an :class:`.ExhaustedJob`."""

    @property
    def tag(self) -> str:
        """The tag under which the job was queued."""
        ...

    @property
    def subject(self) -> str:
        """The subject to which the job was published."""
        ...

    @property
    def times_delivered(self) -> int:
        """How many times the job was delivered."""
        ...


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is dead, and the fields of its run that are known."""

    reason: DeadReason
    error: str | None = None
    run_id: str | None = None
    flow_name: str | None = None
    tags: tuple[str, ...] | None = None

    def entry(self, job: DeadJob, *, now: float, worker_id: str | None) -> JsonObject:
        """Return the stored form, without fields that are not known, except ``error``."""
        catalogued = _ERRORS[self.reason]
        entry: JsonObject = {
            "timestamp": now,
            "reason": self.reason.value,
            "error": None if self.error is None else shortened(self.error),
            "err_id": catalogued.err_id,
            "msg_id": catalogued.msg_id,
            "message": catalogued.ja,
            "run_id": self.run_id,
            "flow_name": self.flow_name,
            "tag": job.tag,
            "tags": list(self.tags) if self.tags is not None else None,
            "worker_id": worker_id,
            "num_delivered": job.times_delivered,
            "subject": job.subject,
        }
        return {name: value for name, value in entry.items() if value is not None or name == "error"}


async def publish_dead_letter(
    dead_letters: DeadLetters, letter: DeadLetter, job: DeadJob, *, now: float, worker_id: str | None = None
) -> None:
    """Publish the letter of a job; one that cannot be published is logged, so that the job is settled all the same."""
    try:
        await dead_letters.publish(job.tag, letter.entry(job, now=now, worker_id=worker_id))
    except (UnavailableError, TooLargeError) as error:
        log_error(_log, "ERR-PYOCO-0011", action="dead_letter_lost", exc=error, reason=letter.reason.value)


class RunFailure(NamedTuple):
    """Why a run fails without its flow."""

    code: str
    reason: str
    message: str


FailRun = Callable[[str, RunInput, RunFailure], Awaitable[object]]
"""Fails a run that has not ended; one without a log is created from the input first."""


async def reject_invalid_job(error: InvalidJobError, fail_run: FailRun) -> DeadLetter:
    """Reject a message that is not a job: fail the run that it names, and return its dead letter.

    UnavailableError if the run could not be failed; the caller then leaves the message in the queue.
    """
    log_error(_log, "ERR-PYOCO-0012", action="invalid_job", exc=error, run_id=error.run_id)
    if error.run_id is not None:
        given = RunInput(flow_name=error.flow_name or "unknown")
        await fail_run(error.run_id, given, RunFailure("INVALID_JOB", "invalid job", text_of(error)))
    return DeadLetter(
        reason=DeadReason.INVALID_JOB, error=text_of(error), run_id=error.run_id, flow_name=error.flow_name
    )


def used_up(state: ExecutionState, times_delivered: int) -> str:
    """Return the error text of a run whose job was delivered ``times_delivered`` times and never settled."""
    at_work = sorted(node.node_id for node in state.live_nodes() if node.is_at_work)
    during = f" during {', '.join(at_work[:5])}" if at_work else ""
    return f"delivered {times_delivered} times without an end: the worker died or was cut off{during}"

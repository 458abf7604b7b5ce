"""What a job says that is only run alone, and who of a run's workers did not live to tell.

See ``worker/lone_jobs.py`` for what workers make of it.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pyoco_server.core import Event
from pyoco_server.core.payloads import NodeStarted

_FIELD: Final = "quarantine"
_SIGN: Final = b'"quarantine"'
"""What has not even this in it need not be read."""

_IN_THE_LOG: Final = ("created", "params", "workflow_yaml")
"""What a job need not say if the run has a log."""


class Mark(msgspec.Struct, frozen=True):
    """What a lone job says of those before it."""

    deliveries: int
    after: int
    """How many events the run had when it was set apart."""
    alone: int = 0
    """How many of the deliveries were after that."""
    forgiven: int = 0
    """How many workers handed it back alive."""


class _Marked(msgspec.Struct):
    quarantine: Mark | None = None


def mark_of(body: bytes) -> Mark | None:
    """What a job says; None if it is not one that is only run alone."""
    if _SIGN not in body:
        return None
    try:
        return msgspec.json.decode(body, type=_Marked).quarantine
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # not ours, and told of where jobs are read
        return None


def marked(body: bytes, mark: Mark) -> bytes:
    """The same job, to be run alone."""
    return msgspec.json.encode({**without_what_the_log_has(msgspec.json.decode(body)), _FIELD: mark})


def without_what_the_log_has(job: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job without those that the log of its run has; all of them if it may have no log."""
    if job.get("log_position") is None:
        return job
    return {name: value for name, value in job.items() if name not in _IN_THE_LOG}


def lost_workers(events: Sequence[Event], worker_id: str | None) -> set[str]:
    """Who began a task of the run and is not ``worker_id``, which lives; what has no worker is no task."""
    payloads = [event.payload for event in events]
    began = {payload.worker_id for payload in payloads if isinstance(payload, NodeStarted)}
    return {worker for worker in began if worker is not None and worker != worker_id}

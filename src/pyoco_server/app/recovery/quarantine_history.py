"""The history that a quarantined job carries, and which workers a run may have killed.

A quarantined job is run alone in its worker process. ``worker/quarantined_job.py`` decides by this history.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pyoco_server.app.runtime.crashes import HANDED_BACK
from pyoco_server.core import Event
from pyoco_server.core.payloads import NodeProgressReported, NodeStarted

_FIELD: Final = "quarantine"
_SIGN: Final = b'"quarantine"'
"""A job without these bytes has no history, and is not decoded."""

_IN_THE_LOG: Final = ("created", "params", "workflow_yaml")
"""Fields of a job that the log of its run has, too."""


class QuarantineHistory(msgspec.Struct, frozen=True):
    """What happened to the jobs of the run before this one."""

    deliveries: int
    after: int
    """How many events the run had when it was quarantined."""
    alone: int = 0
    """How many of the deliveries were after that."""
    forgiven: int = 0
    """How many workers released it and stayed alive."""


class _QuarantinedJob(msgspec.Struct):
    quarantine: QuarantineHistory | None = None


def history_of(body: bytes) -> QuarantineHistory | None:
    """Return the history of a job; None if the job is not quarantined."""
    if _SIGN not in body:
        return None
    try:
        return msgspec.json.decode(body, type=_QuarantinedJob).quarantine
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the code that decodes the job reports it
        return None


def quarantined(body: bytes, history: QuarantineHistory) -> bytes:
    """Return the job as a quarantined one."""
    return msgspec.json.encode({**without_what_the_log_has(msgspec.json.decode(body)), _FIELD: history})


def without_what_the_log_has(job: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job without those that the log of its run has; all of them if it may have no log."""
    if job.get("log_position") is None:
        return job
    return {name: value for name, value in job.items() if name not in _IN_THE_LOG}


def starters(events: Sequence[Event], me: str | None) -> set[str]:
    """Return the marks of the worker processes that started a task of the run, without ``me``."""
    payloads = (event.payload for event in events)
    found = {payload.worker_id for payload in payloads if isinstance(payload, NodeStarted)}
    return {worker for worker in found if worker is not None} - {me}


def lost_workers(events: Sequence[Event], me: str | None) -> set[str]:
    """Return the marks of the workers that started a task of the run and did not hand it back; ``me`` is alive."""
    lost, started_by = set[str](), dict[tuple[str, int], str]()
    for event in events:
        payload = event.payload
        if isinstance(payload, NodeStarted) and payload.worker_id is not None:
            lost.add(payload.worker_id)
            started_by[payload.node_id, payload.attempt] = payload.worker_id
        elif isinstance(payload, NodeProgressReported) and HANDED_BACK in payload.extra and payload.attempt is not None:
            lost.discard(started_by.get((payload.node_id, payload.attempt), ""))
    return lost - {me}

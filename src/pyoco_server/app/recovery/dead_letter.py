"""The content of dead letters, as the specification words it; workers and gateways write them."""

from enum import StrEnum, unique
from typing import Final

import msgspec

from pyoco_server.core import ExecutionState
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.messages import CATALOGUE

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


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter before it is stored: which job, and why."""

    reason: DeadReason
    tag: str
    subject: str
    times_delivered: int
    error: str | None = None
    run_id: str | None = None
    flow_name: str | None = None
    tags: tuple[str, ...] | None = None
    worker_id: str | None = None

    def entry(self, now: float) -> JsonObject:
        """Return the stored form, without fields that are not known, except ``error``."""
        catalogued = _ERRORS[self.reason]
        entry: JsonObject = {
            "timestamp": now,
            "reason": self.reason.value,
            "error": self.error,
            "err_id": catalogued.err_id,
            "msg_id": catalogued.msg_id,
            "message": catalogued.ja,
            "run_id": self.run_id,
            "flow_name": self.flow_name,
            "tag": self.tag,
            "tags": list(self.tags) if self.tags is not None else None,
            "worker_id": self.worker_id,
            "num_delivered": self.times_delivered,
            "subject": self.subject,
        }
        return {name: value for name, value in entry.items() if value is not None or name == "error"}


def used_up(state: ExecutionState, times_delivered: int) -> str:
    """Return the error text of a run whose job was delivered ``times_delivered`` times and never settled."""
    at_work = sorted(node.node_id for node in state.live_nodes() if node.is_at_work)
    during = f" during {', '.join(at_work[:5])}" if at_work else ""
    return f"delivered {times_delivered} times without an end: the worker died or was cut off{during}"

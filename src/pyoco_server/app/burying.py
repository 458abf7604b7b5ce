"""Dead letters as the specification words them: what they say, whoever writes them."""

from enum import StrEnum, unique
from typing import Final

import msgspec

from pyoco_server.core import ExecutionState
from pyoco_server.core.wire import JsonObject
from pyoco_server.messages import CATALOGUE

DELIVERIES_USED_UP = "DELIVERIES_USED_UP"
"""The code of the error with which a run ends whose job was delivered once too often."""


@unique
class DeadReason(StrEnum):
    """Why there is a dead letter."""

    INVALID_JOB = "invalid_job"
    FLOW_NOT_FOUND = "flow_not_found"
    EXECUTION_ERROR = "execution_error"


_ERRORS: Final = {
    DeadReason.INVALID_JOB: CATALOGUE["ERR-PYOCO-0012"],
    DeadReason.FLOW_NOT_FOUND: CATALOGUE["ERR-PYOCO-0006"],
    DeadReason.EXECUTION_ERROR: CATALOGUE["ERR-PYOCO-0007"],
}


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter to be written: about which job, and why."""

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
        """As it is stored; what is not known is left out, but for the error. The message is worded as specified."""
        told = _ERRORS[self.reason]
        entry: JsonObject = {
            "timestamp": now,
            "reason": self.reason.value,
            "error": self.error,
            "err_id": told.err_id,
            "msg_id": told.msg_id,
            "message": told.ja,
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
    """Why a run fails whose job was delivered so often and never seen to its end."""
    at_work = sorted(node.node_id for node in state.live_nodes() if node.is_at_work)
    during = f" during {', '.join(at_work[:5])}" if at_work else ""
    return f"delivered {times_delivered} times without an end: the worker died or was cut off{during}"

"""The options of a worker process."""

import os
import secrets
import socket
from typing import Final

import msgspec

from pyoco_server.flows.model import Isolation

NAK_DELAY_SEC: Final = 2.0
"""The delay of a job that could not be handled because NATS did not answer."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a worker but its flows and the place where runs are stored."""

    tags: tuple[str, ...] = ("default",)
    worker_id: str = ""
    concurrency: int = 8
    """How many runs it drives at a time."""
    isolation: Isolation | None = None
    """Where plain functions run whose task does not say."""
    poll_timeout_sec: float = 1.0
    """How long one request for a job waits."""
    run_heartbeat_interval_sec: float = 1.0
    worker_heartbeat_interval_sec: float = 5.0
    ack_progress_interval_sec: float = 10.0
    """How often the worker reports progress to the queue, so that a job is not delivered again."""
    cancel_grace_sec: float = 30.0
    stop_timeout_sec: float = 30.0
    """How long a stop waits for runs before it hands them back."""
    max_snapshot_bytes: int = 262_144
    publish_execution_error: bool = True

    def named(self) -> "WorkerOptions":
        """Return the options with a worker id; one is made if none was given."""
        if self.worker_id:
            return self
        made = f"{socket.gethostname().partition('.')[0]}-{os.getpid()}-{secrets.token_hex(3)}"
        return msgspec.structs.replace(self, worker_id="".join(c if c.isalnum() else "-" for c in made))

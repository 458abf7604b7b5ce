"""What a worker is told at its start."""

import os
import secrets
import socket
from typing import Final

import msgspec

from pyoco_server.flows.model import Isolation

NAK_DELAY_SEC: Final = 2.0
"""How long a job rests after NATS was away."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a worker that is not its flows or where its runs are stored."""

    tags: tuple[str, ...] = ("default",)
    worker_id: str = ""
    concurrency: int = 8
    isolation: Isolation | None = None
    """Where plain functions run whose task does not say."""
    poll_timeout_sec: float = 1.0
    run_heartbeat_interval_sec: float = 1.0
    worker_heartbeat_interval_sec: float = 5.0
    ack_progress_interval_sec: float = 10.0
    cancel_grace_sec: float = 30.0
    stop_timeout_sec: float = 30.0
    max_snapshot_bytes: int = 262_144
    publish_execution_error: bool = True

    def named(self) -> "WorkerOptions":
        """The same, with a name of its own if it was given none."""
        if self.worker_id:
            return self
        made = f"{socket.gethostname().partition('.')[0]}-{os.getpid()}-{secrets.token_hex(3)}"
        return msgspec.structs.replace(self, worker_id="".join(c if c.isalnum() else "-" for c in made))

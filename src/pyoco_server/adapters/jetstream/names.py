"""What everything is called on the server, and the limits it is created with."""

from typing import Final

import msgspec

from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import KEY, TOKEN

LONGEST_NAME: Final = 1024
"""In bytes. The server ends a connection that names something too long for one line of its protocol."""


def subject_token(value: str, *, field: str) -> str:
    """The value, if it can be one token of a subject; anything else would reach into other subjects."""
    return TOKEN.checked(value, field)


def bucket_key(value: str, *, field: str) -> str:
    """The value, if it can be a key of a bucket: tokens with dots between them."""
    return KEY.checked(value, field)


def object_name(value: str) -> bytes:
    """The name of an object in bytes: any text, if it is not too long."""
    try:
        name = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the name {value!r:.80} cannot be used: it is not valid Unicode") from error
    if not 0 < len(name) <= LONGEST_NAME:
        raise InvalidInputError(f"the name {value!r:.80} cannot be used: 1 to {LONGEST_NAME} bytes, not {len(name)}")
    return name


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names and limits; the limits count only for what does not exist yet."""

    work_stream: str = "PYOCO_WORK"
    work_prefix: str = "pyoco.work"

    dlq_stream: str = "PYOCO_DLQ"
    dlq_prefix: str = "pyoco.dlq"
    dlq_max_age_sec: float = 604_800.0
    dlq_max_msgs: int = 100_000
    dlq_max_bytes: int = 536_870_912

    events_stream: str = "PYOCO_EVENTS"
    events_prefix: str = "pyoco.events"
    live_prefix: str = "pyoco.live"
    control_prefix: str = "pyoco.control"
    alive_prefix: str = "pyoco.alive"

    runs_bucket: str = "pyoco_runs"
    live_snapshots_prefix: str = "pyoco.live_snapshots"
    workers_bucket: str = "pyoco_workers"
    auth_bucket: str = "pyoco_auth"
    wheel_history_bucket: str = "pyoco_wheel_history"
    wheel_history_ttl_sec: float = 7_776_000.0
    graphs_bucket: str = "pyoco_graphs"
    wheels_bucket: str = "pyoco_wheels"
    outputs_bucket: str = "pyoco_outputs"

    ack_wait_sec: float = 30.0
    max_deliver: int = 20
    max_ack_pending: int = 200

    replicas: int = 1

    def work_subject(self, tag: str) -> str:
        """Where jobs of a tag are queued."""
        return f"{self.work_prefix}.{subject_token(tag, field='tag')}"

    def dlq_subject(self, tag: str) -> str:
        """Where dead letters of a tag go."""
        return f"{self.dlq_prefix}.{subject_token(tag, field='tag')}"

    def events_subject(self, run_id: str) -> str:
        """The log of a run."""
        return f"{self.events_prefix}.{subject_token(run_id, field='run_id')}"

    def control_subject(self, run_id: str) -> str:
        """Where those who have a run in hand hear that others wrote to its log."""
        return f"{self.control_prefix}.{subject_token(run_id, field='run_id')}"

    def alive_subject(self, instance_id: str) -> str:
        """Where a worker process answers that it is there."""
        return f"{self.alive_prefix}.{subject_token(instance_id, field='instance_id')}"


def kv_stream(bucket: str) -> str:
    """The stream behind a KV bucket."""
    return f"KV_{bucket}"


def kv_subject(bucket: str, key: str) -> str:
    """Where a key of a KV bucket is written; the key must be a token or a pattern of the caller's own making."""
    return f"$KV.{bucket}.{key}"


def object_stream(bucket: str) -> str:
    """The stream behind an object store bucket."""
    return f"OBJ_{bucket}"

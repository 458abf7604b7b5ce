"""Names of streams, buckets and subjects, and the limits with which they are created."""

from typing import Final

import msgspec

from pyoco_server.identifiers import TOKEN


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names and limits; a limit applies only to what is created."""

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
        """Return the subject of a tag's jobs."""
        return f"{self.work_prefix}.{TOKEN.checked(tag, 'tag')}"

    def dlq_subject(self, tag: str) -> str:
        """Return the subject of a tag's dead letters."""
        return f"{self.dlq_prefix}.{TOKEN.checked(tag, 'tag')}"

    def events_subject(self, run_id: str) -> str:
        """Return the subject of a run's log."""
        return f"{self.events_prefix}.{TOKEN.checked(run_id, 'run_id')}"

    def control_subject(self, run_id: str) -> str:
        """Return the subject on which the owner of a run is notified of commits by other processes."""
        return f"{self.control_prefix}.{TOKEN.checked(run_id, 'run_id')}"

    def alive_subject(self, instance_id: str) -> str:
        """Return the subject on which a worker process answers that it is alive."""
        return f"{self.alive_prefix}.{TOKEN.checked(instance_id, 'instance_id')}"


def kv_stream(bucket: str) -> str:
    """The stream behind a KV bucket."""
    return f"KV_{bucket}"


def kv_subject(bucket: str, key: str) -> str:
    """Return the subject of a key of a KV bucket; the key must be a checked token, or a pattern."""
    return f"$KV.{bucket}.{key}"


def object_stream(bucket: str) -> str:
    """The stream behind an object store bucket."""
    return f"OBJ_{bucket}"


EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
"""The header of a compare-and-set: the message is stored only if the subject's last one has this sequence."""

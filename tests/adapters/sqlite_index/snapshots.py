"""Short ways to write snapshots and their changes."""

import json
import random
import uuid
from typing import Any

from pyoco_server.app.ports import SnapshotChange

STATUSES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLING", "CANCELLED")


def snapshot(**fields: Any) -> dict[str, Any]:
    """A snapshot as the projection writes it, of a run that just began."""
    return {
        "flow_name": "flow",
        "status": "RUNNING",
        "params": {"a": 1},
        "tasks": {"t": "RUNNING"},
        "heartbeat_at": 100.0,
        "updated_at": 100.0,
        "tag": "default",
        "tags": ["default"],
        "submitted_at": 100.0,
        "driven_by": "worker",
        "task_records": {"t": {"task": "t", "status": "RUNNING", "output": "long"}},
        "waiting": [],
        "log_position": 1,
        **fields,
    }


def change(run_id: str, sequence: int, **fields: Any) -> SnapshotChange:
    return SnapshotChange(run_id, json.dumps(snapshot(**fields)).encode(), sequence)


def gone(run_id: str, sequence: int) -> SnapshotChange:
    return SnapshotChange(run_id, None, sequence)


def waits(node_id: str, deadline: str | None = None) -> dict[str, Any]:
    return {"node_id": node_id, "task": node_id, "wait_key": "k", "prompt": "?", "deadline": deadline}


def random_change(sequence: int, *, runs: int, seed: int = 0) -> SnapshotChange:
    """The change with this number: always the same one, in any process."""
    source = random.Random(seed * 1_000_003 + sequence)
    number = source.randrange(runs)
    run_id = str(uuid.UUID(int=random.Random(number).getrandbits(128)))
    if source.random() < 0.05:
        return gone(run_id, sequence)
    status = source.choice(STATUSES)
    waiting = [waits("t", "2026-01-01T00:00:00+00:00")] if source.random() < 0.2 else []
    return change(
        run_id,
        sequence,
        status=status,
        tenant_id=f"tenant{number % 3}",
        flow_name=f"flow{number % 4}",
        tag=("default", "gpu")[number % 2],
        submitted_at=1000.0 + number,
        updated_at=1000.0 + number + source.random() * 100,
        workflow_yaml_sha256=f"{number % 5:064x}",
        waiting=waiting,
    )

"""What programs that know only the specification's appendices E and F write, in memory."""

from typing import Any

import msgspec

from tests.worker.world import World


async def put(world: World, run_id: str, body: bytes) -> None:
    """Write a snapshot blindly, as ``kv.put`` does."""
    stored = await world.snapshots.inner.read(run_id)
    revision = None if stored is None else stored.revision
    await world.snapshots.inner.write(run_id, body, position=2**60, revision=revision)


async def worker_writes(world: World, run_id: str, status: str, **fields: Any) -> None:
    """A worker of the specification records a state: the required fields of appendix F, and nothing of ours."""
    now = world.clock.now().timestamp()
    required = {"run_id": run_id, "flow_name": "f", "status": status, "params": {}, "tasks": {"theirs": "RUNNING"}}
    await put(world, run_id, msgspec.json.encode({**required, "heartbeat_at": now, "updated_at": now, **fields}))


async def changes(world: World, run_id: str, **fields: Any) -> None:
    """Any program reads the snapshot, changes some fields, keeps the others, and writes it back."""
    stored = await world.snapshots.inner.read(run_id)
    assert stored is not None
    await put(world, run_id, msgspec.json.encode({**msgspec.json.decode(stored.body), **fields}))


async def gateway_cancels(world: World, run_id: str) -> None:
    """A gateway of the specification accepts a cancel."""
    now = world.clock.now().timestamp()
    await changes(world, run_id, status="CANCELLING", cancel_requested_at=now, updated_at=now)

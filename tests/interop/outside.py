"""What programs that know only the specification's appendices E and F write, in memory, and our worker beside them."""

from typing import Any

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from tests.app.runtime.flows import Calls
from tests.kill.processes import eventually
from tests.worker.world import Hand, World

FOREIGN = {"run_id": "foreign-1", "flow_name": "f", "tag": "default", "submitted_at": 1.0, "params": {}}
"""The job of a run that another gateway submitted."""


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


def hand_for(world: World, calls: Calls, **options: Any) -> Hand:
    return world.hand({"f": Flow("f") >> calls.task("ours", 1)}, **options)


async def shown_as_driven(world: World, run_id: str) -> None:
    """Wait until a worker of ours has written that it has the run."""

    async def is_driven() -> bool:
        return (await world.stored(run_id)).get("driven_by") is not None

    await eventually(is_driven, f"'{run_id}' is driven")

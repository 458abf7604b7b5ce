"""The one writer of snapshots: what it stores, what it leaves as it is, and what it removes."""

import ast
from pathlib import Path

import msgspec
import pytest

import pyoco_server
from pyoco_server.app.ports import StoredSnapshot, UnavailableError
from pyoco_server.app.runs.run_log import OpenRun
from pyoco_server.app.snapshots.status import NOT_ACCEPTED
from pyoco_server.app.snapshots.writer import Ownership, SnapshotWriter
from tests.worker.world import USER, World, attempt

PACKAGE = Path(pyoco_server.__file__).parent
WRITES = {"write", "forbid", "delete"}
"""The methods of the port ``Snapshots`` that change something."""


class Owner:
    """The process that owns a run; ``claims`` is how often it has looked at a foreign snapshot."""

    def __init__(self, run: OpenRun, *, make_replaceable: bool = True) -> None:
        self.projection = run.projection
        self.position = run.execution.position
        self.claims = 0
        self._may_replace = make_replaceable

    def ownership(self, stored: StoredSnapshot | None) -> Ownership:
        assert stored is None or stored.run_id == self.projection.state.execution_id
        return Ownership(5.0, "w1")

    async def make_replaceable(self, stored: StoredSnapshot) -> bool:
        assert stored.body
        self.claims += 1
        return self._may_replace


def writer_of(world: World) -> SnapshotWriter:
    return SnapshotWriter(world.snapshots, max_bytes=100_000)


async def heartbeat(world: World, run_id: str) -> bytes:
    """Write what a worker of another program writes of a run, and return it."""
    body = msgspec.json.encode({"run_id": run_id, "status": "RUNNING", "heartbeat_at": 1.0})
    stored = await world.snapshots.inner.read(run_id)
    assert stored is not None
    assert await world.snapshots.inner.write(run_id, body, position=stored.position, revision=stored.revision)
    return body


@pytest.mark.parametrize("is_known", [True, False], ids=["with the first revision", "without a revision"])
def test_an_older_position_never_replaces_a_newer_one(is_known: bool) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        first = await world.snapshots.inner.read(run_id)
        old = Owner(await world.run_log.open(run_id))
        assert first is not None
        await world.cancel(run_id)
        newest = await world.snapshots.inner.read(run_id)
        assert await writer_of(world).write(old, revision=first.revision if is_known else None) is None
        await writer_of(world).refresh(old)
        assert await world.snapshots.inner.read(run_id) == newest

    attempt(body)


def test_a_foreign_snapshot_is_adopted_before_it_is_replaced() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        owner = Owner(await world.run_log.open(run_id))
        await heartbeat(world, run_id)
        assert await writer_of(world).write(owner, revision=None)
        assert owner.claims == 1
        assert (await world.stored(run_id))["driven_by"] == "w1"

    attempt(body)


def test_a_foreign_snapshot_that_must_stay_stays() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        owner = Owner(await world.run_log.open(run_id), make_replaceable=False)
        foreign = await heartbeat(world, run_id)
        assert await writer_of(world).write(owner, revision=None) is None
        await writer_of(world).refresh(owner)
        stored = await world.snapshots.inner.read(run_id)
        assert (owner.claims, stored.body if stored else None) == (2, foreign)

    attempt(body)


def test_other_programs_that_never_stop_writing_are_an_unknown_outcome() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        owner = Owner(await world.run_log.open(run_id))

        async def write_again() -> None:
            await heartbeat(world, run_id)
            world.trouble.meanwhile["snapshots.write"] = write_again

        world.trouble.meanwhile["snapshots.write"] = write_again
        with pytest.raises(UnavailableError, match="changed the snapshot"):
            await writer_of(world).write(owner, revision=None)
        world.trouble.meanwhile.clear()

    attempt(body)


def test_a_first_snapshot_replaces_nothing() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        first = await world.stored(run_id)
        foreign = await heartbeat(world, run_id)
        assert await writer_of(world).write_first(first) is None
        stored = await world.snapshots.inner.read(run_id)
        assert stored is not None
        assert stored.body == foreign

    attempt(body)


def test_a_retracted_run_has_no_snapshot_whatever_is_commanded() -> None:
    """An archive of a run that was never accepted used to write its snapshot, and the run was listed."""

    async def body(world: World) -> None:
        run_id = await world.submit("any")
        await world.run_log.retract(run_id, USER)
        assert (await world.state(run_id)).cancel_reason == NOT_ACCEPTED
        await world.archive(run_id)
        assert (await world.events(run_id))[-1].type.value == "EXECUTION_ARCHIVED"
        assert await world.stored(run_id) == {}
        await world.cancel(run_id)
        assert await world.stored(run_id) == {}

    attempt(body)


def test_no_other_module_changes_a_snapshot() -> None:
    """Types say so, too: all other code takes a SnapshotReader, or only passes Snapshots on."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WRITES
        and ast.unparse(node.func.value).rpartition(".")[2] in {"snapshots", "_snapshots"}
    }
    assert found == {"app/snapshots/writer.py", "app/tenancy/tenant_ports.py"}

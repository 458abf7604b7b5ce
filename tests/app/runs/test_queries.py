"""Reads of one run whose stored snapshot is missing or damaged."""

import msgspec
import pytest

from pyoco_server.app.ports import LOG_STATUS
from pyoco_server.app.runs.queries import snapshot_of
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.app.snapshots.codec import SnapshotUnreadableError
from tests.worker.world import USER, World, attempt

DAMAGED = (b"", b"oh", b"[1]", b'{"status": "PEN')


@pytest.mark.parametrize("body", DAMAGED)
def test_a_damaged_snapshot_is_replaced_by_the_state_in_the_log(body: bytes) -> None:
    async def check(world: World) -> None:
        run_id = await world.submit("hello", {"n": 1})
        before = await snapshot_of(world.snapshots, world.run_log, run_id)
        await world.snapshots.write(run_id, body, position=before.position)
        found = await snapshot_of(world.snapshots, world.run_log, run_id)
        snapshot = msgspec.json.decode(found.body)
        assert (snapshot["status"], snapshot["params"]) == ("PENDING", {"n": 1})
        assert found.position == before.position
        assert found.revision > before.revision

    attempt(check)


@pytest.mark.parametrize("body", DAMAGED)
def test_a_damaged_snapshot_without_a_log_is_unreadable(body: bytes) -> None:
    async def check(world: World) -> None:
        await world.snapshots.write("foreign", body, position=0)
        with pytest.raises(SnapshotUnreadableError, match="'foreign'"):
            await snapshot_of(world.snapshots, world.run_log, "foreign")

    attempt(check)


def test_a_missing_snapshot_is_replaced_by_the_state_in_the_log() -> None:
    async def check(world: World) -> None:
        run_id = await world.submit("hello", {"n": 1})
        before = await snapshot_of(world.snapshots, world.run_log, run_id)
        await world.snapshots.delete(run_id)
        found = await snapshot_of(world.snapshots, world.run_log, run_id)
        shown = {name: said for name, said in msgspec.json.decode(before.body).items() if name != LOG_STATUS}
        assert msgspec.json.decode(found.body) == shown
        assert (found.position, found.revision) == (before.position, 0)
        with pytest.raises(RunNotFoundError):
            await snapshot_of(world.snapshots, world.run_log, "no-such-run")

    attempt(check)


def test_a_retracted_run_does_not_exist_even_if_something_is_stored_for_it() -> None:
    async def check(world: World) -> None:
        run_id = await world.submit("hello")
        await world.run_log.retract(run_id, USER)
        await world.snapshots.write(run_id, b"oh", position=10)
        with pytest.raises(RunNotFoundError):
            await snapshot_of(world.snapshots, world.run_log, run_id)

    attempt(check)

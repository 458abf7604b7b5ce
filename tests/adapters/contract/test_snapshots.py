"""The contract of the snapshot store: the newest position wins, whichever program writes it and in whatever order."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.app.ports import ForeignSnapshotError, Snapshots, StoredSnapshot, TooLargeError
from tests.adapters.conftest import Backend

R = TypeVar("R")


def attempt(backend: Backend, body: Callable[[Snapshots, Snapshots], Awaitable[R]]) -> R:
    """Run ``body`` with two writers that have separate connections."""

    def in_memory() -> Snapshots:
        return MemorySnapshots()

    def on_jetstream(connection: Connection, names: Names) -> Snapshots:
        return JetStreamSnapshots(connection, names)

    async def with_two(open_snapshots: Callable[[], Awaitable[Snapshots]]) -> R:
        return await body(await open_snapshots(), await open_snapshots())

    return backend.run(in_memory, on_jetstream, with_two)


def at(position: int, **fields: object) -> bytes:
    return json.dumps({"run_id": "r", "log_position": position, **fields}).encode()


async def read(snapshots: Snapshots, run_id: str = "r") -> StoredSnapshot:
    stored = await snapshots.read(run_id)
    assert stored is not None, "there is no snapshot"
    return stored


def test_snapshot_is_read_as_it_was_written(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        assert await one.read("r") is None
        text = b'{ "status":"RUNNING",  "log_position": 7, "name": "\xc3\xa4" }'
        revision = await one.write("r", text, position=7)
        assert await other.read("r") == StoredSnapshot("r", text, 7, revision or 0)
        assert await other.read("s") is None

    attempt(backend, body)


@pytest.mark.parametrize(
    "foreign",
    [b'{"status":"PENDING"}', b"no json", b"[]", b'{"log_position":"7"}', b'{"log_position":null}', b"\xff", b""],
)
def test_snapshot_without_a_position_is_older_than_any_other(backend: Backend, foreign: bytes) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await one.write("r", foreign, position=0)
        stored = await read(other)
        assert (stored.body, stored.position) == (foreign, 0)
        assert await other.write("r", at(1), position=1, revision=stored.revision)
        assert (await read(one)).position == 1

    attempt(backend, body)


CHANGED_BY_OTHERS = {
    "nothing of ours is left": b'{"status":"COMPLETED"}',
    "no snapshot at all": b"no json",
    "a cancel": at(5, status="CANCELLING", log_status="RUNNING", cancel_requested_at=1.5),
    "a cancel without its status": at(5, status="RUNNING", log_status="RUNNING", cancel_requested_at=1.5),
    "an end": at(5, status="FAILED", log_status="RUNNING"),
    "a start": at(5, status="RUNNING", log_status="PENDING"),
}


@pytest.mark.parametrize("believed", [None, 0, 10_000])
@pytest.mark.parametrize("foreign", CHANGED_BY_OTHERS.values(), ids=CHANGED_BY_OTHERS.keys())
def test_snapshot_of_another_program_is_not_overwritten_unread(
    backend: Backend, foreign: bytes, believed: int | None
) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        ours = await one.write("r", at(5, status="RUNNING", log_status="RUNNING"), position=5)
        await other.write("r", foreign, position=5, revision=ours)
        stored = await read(other)
        for position in (5, 6):
            with pytest.raises(ForeignSnapshotError) as caught:
                await one.write("r", at(position), position=position, revision=believed)
            assert caught.value.stored == stored
        assert await read(one) == stored
        assert await one.write("r", at(6), position=6, revision=stored.revision) is not None
        assert (await read(other)).position == 6

    attempt(backend, body)


def test_newer_snapshot_changed_by_another_program_is_kept(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        changed = at(7, status="CANCELLING", log_status="RUNNING", cancel_requested_at=1.5)
        await other.write("r", changed, position=7)
        assert await one.write("r", at(6), position=6) is None
        assert (await read(one)).body == changed

    attempt(backend, body)


def test_write_refuses_an_older_position_and_accepts_a_newer_one(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        first = await one.write("r", at(5), position=5)
        assert await other.write("r", at(4), position=4) is None
        assert (await read(one)).position == 5
        second = await other.write("r", at(6), position=6)
        assert first is not None
        assert second is not None
        assert second > first
        assert await read(one) == StoredSnapshot("r", at(6), 6, second)

    attempt(backend, body)


def test_later_write_of_the_same_position_wins(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await one.write("r", at(5, heartbeat_at=1), position=5)
        revision = await other.write("r", at(5, heartbeat_at=2), position=5)
        assert await read(one) == StoredSnapshot("r", at(5, heartbeat_at=2), 5, revision or 0)

    attempt(backend, body)


def test_forbid_succeeds_only_before_the_first_snapshot(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        assert await one.forbid("r")
        assert await other.forbid("r")
        assert await one.read("r") is None
        await one.write("s", at(1), position=1)
        assert not await other.forbid("s")
        assert (await read(one, "s")).position == 1
        assert await other.write("r", at(2), position=2)  # without a revision: the writer reads first
        assert (await read(one)).position == 2
        assert not await one.forbid("r")

    attempt(backend, body)


def test_forbid_refuses_a_first_write_of_any_process_and_no_other(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await one.write("was", at(1), position=1)
        await one.delete("was")
        for run_id in ("r", "was"):
            assert await one.forbid(run_id)
            for writer in (one, other):
                assert await writer.write(run_id, at(1), position=1, revision=0) is None
            assert await other.read(run_id) is None
            assert await other.write(run_id, at(2), position=2) is not None
            await one.delete(run_id)
            assert await other.write(run_id, at(3), position=3, revision=0) is not None

    attempt(backend, body)


def test_writes_with_known_revisions_succeed_one_after_the_other(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        revision = await one.write("r", at(1), position=1, revision=0)
        for position in range(2, 6):
            before, revision = revision, await one.write("r", at(position), position=position, revision=revision)
            assert revision is not None
            assert before is not None
            assert revision > before
        assert await read(other) == StoredSnapshot("r", at(5), 5, revision or 0)

    attempt(backend, body)


@pytest.mark.parametrize("believed", [0, 1, 10_000])
def test_write_with_a_wrong_revision_still_compares_positions(backend: Backend, believed: int) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await other.write("another", at(1), position=1)
        await one.write("r", at(5), position=5)
        assert await other.write("r", at(4), position=4, revision=believed) is None
        assert (await read(one)).position == 5
        assert await other.write("r", at(6), position=6, revision=believed) is not None
        assert (await read(one)).position == 6

    attempt(backend, body)


def test_write_with_the_revision_of_an_absent_snapshot_succeeds(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        assert await one.write("r", at(3), position=3, revision=77) is not None
        assert (await read(other)).position == 3

    attempt(backend, body)


def test_snapshots_of_runs_are_separate(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await one.write("r", at(9), position=9)
        assert await one.write("s", at(1), position=1) is not None
        await one.delete("r")
        assert (await read(other, "s")).position == 1

    attempt(backend, body)


def test_deleted_snapshot_is_absent_and_can_be_written_again(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        revision = await one.write("r", at(5), position=5)
        await other.delete("r")
        assert await one.read("r") is None
        await other.delete("r")
        again = await one.write("r", at(2), position=2, revision=0)
        assert await read(other) == StoredSnapshot("r", at(2), 2, again or 0)
        await other.delete("r")
        assert await one.write("r", at(3), position=3, revision=revision) is not None
        await one.delete("r")
        assert await one.write("r", at(1), position=1) is not None

    attempt(backend, body)


def test_delete_of_an_absent_snapshot_does_nothing(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await one.delete("r")
        assert await other.read("r") is None
        assert await one.write("r", at(1), position=1, revision=0) is not None

    attempt(backend, body)


def test_concurrent_writes_leave_the_newest_position(backend: Backend) -> None:
    positions = list(range(1, 31))
    random.Random(3).shuffle(positions)

    async def body(one: Snapshots, other: Snapshots) -> tuple[StoredSnapshot, list[int | None]]:
        revisions = await asyncio.gather(
            *[
                (one, other)[position % 2].write(
                    "r", at(position), position=position, revision=[None, 0][position % 3 == 0]
                )
                for position in positions
            ]
        )
        return await read(one), revisions

    stored, revisions = attempt(backend, body)
    assert (stored.position, stored.body) == (30, at(30))
    assert revisions[positions.index(30)] == stored.revision
    written = [revision for revision in revisions if revision is not None]
    assert max(written) == stored.revision
    assert len(set(written)) == len(written)


def test_too_large_snapshot_is_refused_and_changes_nothing(backend: Backend) -> None:
    async def body(one: Snapshots, other: Snapshots) -> None:
        await one.write("r", at(1), position=1)
        for size in (1_048_577, 5_000_000):
            with pytest.raises(TooLargeError):
                await one.write("r", at(2, filler="x" * size), position=2)
        assert (await read(other)).position == 1
        assert await one.write("r", at(2, filler="x" * 900_000), position=2) is not None
        assert (await read(other)).position == 2

    attempt(backend, body)

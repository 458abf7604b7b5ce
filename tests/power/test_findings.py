"""Losses of power that once broke a promise, each brought about at its worst moment; and planted bugs."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from tools.power_setup import is_available

from tests.power.clients import asking
from tests.power.crash import lose_power
from tests.power.disk import STRICT, XFS, FileSystem, Trigger
from tests.power.mount import mounted
from tests.power.promises import MISSING_SEC, Outcome
from tests.power.world import START_SEC, PowerWorld

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="disks cannot be mounted here: FUSE needs root and /dev/fuse"),
    pytest.mark.timeout(300),
]
FirstStart = Callable[[Path, FileSystem], Coroutine[None, None, Outcome]]
RENAME_LASTS = 1
"""A seed with which the journal has recorded the last rename when the power fails."""


async def crash_during_the_first_start(home: Path, system: FileSystem, bug: str = "") -> Outcome:
    """Let the power fail when a new platform has synced the description of its first stream only."""
    image = home / "image"
    image.mkdir()
    world = PowerWorld(home, bug=bug)
    with mounted(home / "mount", image, system, RENAME_LASTS) as mount:
        (mount.path / "data").mkdir()
        mount.arm(Trigger("fsync", 2, takes_effect=True, within="/meta."))
        async with world.starting(mount.path / "data"):
            assert await asyncio.to_thread(mount.wait_for_failure, START_SEC)
    return await world.outcome(image / "data")


async def crash_after_the_first_start(home: Path, system: FileSystem) -> Outcome:
    """Let the power fail as soon as a new platform is ready."""
    image = home / "image"
    image.mkdir()
    world = PowerWorld(home)
    with mounted(home / "mount", image, system, RENAME_LASTS) as mount:
        (mount.path / "data").mkdir()
        async with world.starting(mount.path / "data") as gateway:
            await gateway.ready(START_SEC)
            mount.fail()
    return await world.outcome(image / "data")


@pytest.mark.parametrize("crash", [crash_during_the_first_start, crash_after_the_first_start])
def test_a_platform_starts_after_a_crash_of_its_very_first_start(tmp_path: Path, crash: FirstStart) -> None:
    asyncio.run(crash(tmp_path, XFS)).assert_kept()


def test_a_start_that_takes_streams_cut_short_for_damaged_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="died at its start"):
        asyncio.run(crash_during_the_first_start(tmp_path, XFS, "streams_cut_short_count_as_damaged"))


def test_a_missing_sync_of_the_log_is_found(tmp_path: Path) -> None:
    assert asyncio.run(lose_power(tmp_path, STRICT, 39, bug="the_log_is_not_synced", missing_sec=12)).broken


async def crash_at_a_rewritten_block(world: PowerWorld, image: Path, stream: str) -> None:
    """Let the power fail when NATS has put a rewritten block of a stream in place; its content is lost."""
    with mounted(world.home / "mount", image, XFS, RENAME_LASTS) as mount:
        data = mount.path / "data"
        data.mkdir()
        async with world.running(data) as client, asking(world.clients(client, "large").fill()):
            mount.arm(Trigger("rename", 1, takes_effect=True, within=f"{stream}/msgs/"))
            assert await asyncio.to_thread(mount.wait_for_failure, START_SEC), f"no block of {stream} was rewritten"


def test_runs_whose_rewritten_snapshots_are_lost_are_found_again(tmp_path: Path) -> None:
    world, image = PowerWorld(tmp_path), tmp_path / "image"
    image.mkdir()

    async def crash() -> dict[str, Outcome]:
        await crash_at_a_rewritten_block(world, image, "KV_pyoco_runs")
        found = {}
        for bug in ("", "an_empty_block_is_trusted", "nothing_is_adopted"):
            world.bug, left = bug, tmp_path / f"left {bug}"
            shutil.copytree(image, left)
            found[bug] = await world.outcome(left / "data", missing_sec=12.0 if bug else MISSING_SEC)
        return found

    found = asyncio.run(crash())
    found.pop("").assert_kept()
    assert all(outcome.lost for outcome in found.values())


def test_runs_whose_rewritten_jobs_are_lost_continue(tmp_path: Path) -> None:
    world, image = PowerWorld(tmp_path), tmp_path / "image"
    image.mkdir()

    async def crash() -> Outcome:
        await crash_at_a_rewritten_block(world, image, "PYOCO_WORK")
        return await world.outcome(image / "data")

    asyncio.run(crash()).assert_kept()
    assert world.said("run_rescued") == 0, "jobs were missing until the sweep for runs without a heartbeat found them"


def test_everything_derived_is_built_again_from_the_logs(tmp_path: Path) -> None:
    """Snapshots, jobs, the registry of workers and the index are deleted while the platform is stopped."""
    world, data = PowerWorld(tmp_path), tmp_path / "data"

    async def delete() -> Outcome:
        async with world.running(data) as client, asking(world.clients(client, "all").ask()):
            await world.answers(150)
        for derived in (*data.rglob("KV_pyoco_runs"), *data.rglob("PYOCO_WORK"), *data.rglob("KV_pyoco_workers")):
            shutil.rmtree(derived)
        for index in data.glob("index-*"):
            index.unlink()
        return await world.outcome(data)

    asyncio.run(delete()).assert_kept()
    assert world.said("run_rescued") == 0

"""Losses of power that once broke a promise, each brought about at its worst moment."""

import asyncio
from pathlib import Path

import pytest
from tools.power_setup import is_available

from tests.power.disk import EXT4, STRICT, XFS, FileSystem
from tests.power.mount import mounted
from tests.power.promises import Outcome
from tests.power.world import PowerWorld

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="disks cannot be mounted here: FUSE needs root and /dev/fuse"),
    pytest.mark.timeout(300),
]
RENAME_LASTS = 1
"""A seed with which the journal has recorded the last rename when the power fails."""


@pytest.mark.parametrize("system", [XFS, EXT4, STRICT], ids=lambda system: system.name)
def test_a_crash_right_after_the_very_first_start_leaves_a_platform_that_starts(
    tmp_path: Path, system: FileSystem
) -> None:
    image = tmp_path / "image"
    image.mkdir()
    world = PowerWorld(tmp_path)

    async def crash() -> Outcome:
        with mounted(tmp_path / "mount", image, system, RENAME_LASTS) as mount:
            (mount.path / "data").mkdir()
            async with world.running(mount.path / "data"):
                mount.fail()
        return await world.outcome(image / "data")

    asyncio.run(crash()).assert_kept()

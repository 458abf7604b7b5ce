"""The power fails below a running platform: every acknowledgement survives, and everything comes to its end.

``python -m tests.power.crash --count 200`` runs the same at full scale.
"""

import asyncio
from pathlib import Path

import pytest
from tools.power_setup import is_available

from tests.power.crash import lose_power
from tests.power.disk import EXT4, STRICT, XFS, FileSystem

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="disks cannot be mounted here: FUSE needs root and /dev/fuse"),
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize(("system", "seed"), [(XFS, 1), (EXT4, 2), (STRICT, 3)], ids=["xfs", "ext4", "strict"])
def test_every_acknowledgement_survives(tmp_path: Path, system: FileSystem, seed: int) -> None:
    outcome = asyncio.run(lose_power(tmp_path, system, seed))
    assert outcome.broken == []


def test_a_crash_during_the_recovery_from_a_crash_loses_nothing(tmp_path: Path) -> None:
    outcome = asyncio.run(lose_power(tmp_path, XFS, 4, restarts=2))
    assert outcome.broken == []


def test_a_worker_that_cannot_see_the_store_loses_nothing(tmp_path: Path) -> None:
    outcome = asyncio.run(lose_power(tmp_path, STRICT, 6, sees_store=False))
    assert outcome.broken == []


def test_without_syncs_acknowledgements_are_lost(tmp_path: Path) -> None:
    outcome = asyncio.run(lose_power(tmp_path, STRICT, 5, durability="fast"))
    assert outcome.broken
